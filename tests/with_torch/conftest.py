"""One thread: the models are tiny, and on a busy machine threads wait for each other longer than they work."""

import torch

torch.set_num_threads(1)
