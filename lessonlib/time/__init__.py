"""Work on a machine: accelerators, deployments, what fits in memory, and the roofline."""

from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import Phase, Roof, pass_cost, roofline
