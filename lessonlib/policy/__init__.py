"""What follows from the cost of a request: estimates, growth of the cache, batching, levers, mixes, serving."""

from typing import TYPE_CHECKING

from lessonlib.base.door import opened

if TYPE_CHECKING:
    from lessonlib.policy.batching import (
        intensities,
        output_token_in_prompt_tokens,
        parallel_thoughts,
        price_of_request,
    )
    from lessonlib.policy.cache import (
        Paging,
        StepParts,
        answer_traffic,
        cache_by_kind,
        paging,
        span_where_cache_passes_weights,
        step_parts,
    )
    from lessonlib.policy.estimates import chi, omega, rho, ridge_tokens, roof_batch, used_over_read
    from lessonlib.policy.full_server import (
        AtLatency,
        SteadyState,
        at_latency,
        mean_slot_bytes,
        memory_batch,
        mixed_pass,
        steady_state,
    )
    from lessonlib.policy.levers import (
        Lever,
        batch_to_limit,
        chunked_prefill,
        drafts_that_yield,
        expert_parallel,
        faster_peak,
        latent_attention,
        more_bandwidth,
        more_memory,
        prefix_cache,
        prefix_reload,
        quantised,
        scaled_overhead,
        shorter_answer,
        sparse_attention,
        speculative_decoding,
        tensor_parallel,
        windowed_layers,
    )
    from lessonlib.policy.mix import TrafficCost, price
    from lessonlib.policy.ranking import Ranked, rank_levers, usual_levers
    from lessonlib.policy.sensitivity import break_even_by_rho, break_even_output, elasticities, faster_prefill
    from lessonlib.policy.serving.simulator import simulate
    from lessonlib.policy.serving.traffic import Traffic, all_at_once, poisson_traffic
else:
    __getattr__, __dir__ = opened(__name__)
