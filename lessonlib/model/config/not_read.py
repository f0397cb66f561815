"""What is refused by name, and why; and which keys that a family does not read are an error, and which are harmless."""

import re
from typing import Any

# fmt: off
# What to do about an architecture that no row describes.
WAY_ON = (
    "take the nearest model of the catalogue, or put its layers together by hand with Model(...), as "
    "docs/own_layout.md shows"
)
# --- what is refused by name, and why ---
_ENCODERS = """
albert bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert convbert data2vec-text
deberta deberta-v2 distilbert electra ernie esm flaubert fnet fsmt funnel git ibert layoutlm led longformer longt5
luke m2m_100 marian mbart megatron-bert mobilebert modernbert mpnet mra mt5 musicgen
musicgen_melody mvp nezha nllb-moe nystromformer pegasus pegasus_x plbart prophetnet qdqbert reformer rembert roberta
roberta-prelayernorm roc_bert roformer speech_to_text squeezebert switch_transformers t5 t5gemma t5gemma2 trocr udop
umt5 whisper xlm xlm-prophetnet xlm-roberta xlm-roberta-xl xlnet xmod yoso
"""
ENCODERS = frozenset(_ENCODERS.split())
_NO_ROW = """
blt hrm_text inkling2_text inkling2_loop_text modernbert-decoder moshi qwen4_exp qwen4_exp_text zaya
"""
IRREGULAR = {
    **dict.fromkeys(_NO_ROW.split(), "its layers have parts of their own, which no row of the table describes"),
    "axk2": "its norms have gates of a rank of their own",
    "longcat_flash": "some of its experts compute nothing, so what a token uses differs from token to token",
    "cpmant": "it puts 32 learned tokens before each prompt, which all see one another",
    "jetmoe": "the heads of its attention are experts, too, of which a token uses some",
}

# --- which keys are structural: set and unread, they are an error ---
STRUCTURAL = (
    r"expert|moe|lora|mamba|ssm|conv|linear_|rnn|state_size|layer_types|layers_type|block_type|block_config|per_layer|layers_block"
    r"|layer_indices|layer_list|attn_type|index_|indexer|shared_kv|kv_shared|cross_att|encoder|^hc_|altup|laurel|window"
    r"|sliding|chunk_size|vision|audio|sink|mla|hybrid|dense|dff|nope_head|rope_head|q_head_dim|k_head_dim|v_head_dim"
    r"|head_dim|qk_norm|qk_layernorm|pruned_heads|layer_norm_elementwise|bidirectional|loop|recurrence"
    r"|output_vocab|embed_proj|emb_dim|embedding_size|gating|gate_|_gate|bias$|tie_|multi_query|parallel_attn"
    r"|sharing|post_norm|sandwich|sub_norm|use_post|relative|compress|n_groups"
    r"|^(hidden_size|n_embd|n_embed|d_model|num_hidden_layers|n_layers?|num_layers|num_attention_heads|n_heads?|num_heads"
    r"|attention_heads|num_key_value_heads|num_kv_heads|n_head_kv|intermediate_size|n_inner|ffn_dim|ffn_hidden_size"
    r"|text_config|is_encoder_decoder)$"
)
GROUPS = "kv|group|gqa|mqa|key_value"  # with a number: how many heads share keys and values
HARMLESS: dict[str, Any] = {  # look structural, and change neither sizes nor work; with the value where that holds
    **dict.fromkeys((
        "router_aux_loss_coef", "chunk_size_feed_forward", "moe_router_dtype", "num_expert_group", "moe_norm_min",
        "moe_renormalize", "moe_routed_scaling_factor", "moe_router_logit_softcapping", "expert_selection_fn",
        "shared_expert_combination_strategy", "enable_moe_fp32_combine", "mamba_chunk_size", "use_mamba_kernels",
        "chunk_size", "moe_router_activation_func", "num_expert_groups", "max_window_layers", "n_group", "topk_group",
        "num_beam_groups", "clip_qkv", "num_limited_groups",
    )),
    "moe_layer_freq": 1, "mamba_ssm_cache_dtype": "float32", "mamba_ssm_dtype": "float32",  # as the state is counted
}
SAME_THING = (  # names of one thing: an unread one is harmless where it equals the one that was read
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "emb_dim", "word_embed_proj_dim", "embedding_size",
     "conv_dim", "conv_dim_out", "block_dim", "model_dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "num_attention_heads_per_layer",
     "num_query_heads", "decoder_attention_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "n_kv_head", "kv_heads", "num_heads_kv",
     "num_query_groups", "multi_query_group_num", "n_key_value_heads"),
    ("head_dim", "attention_head_dim", "attention_head_size", "head_size", "d_head", "kv_channels", "dim_head"),
    ("v_head_dim", "value_head_dim", "d_v"),
    ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "dff", "ffn_intermediate_size",
     "feed_forward_size", "dim_ff", "decoder_ffn_dim", "block_ff_dim"),
    ("vocab_size", "padded_vocab_size", "n_vocab", "vocabulary_size", "output_vocab_size"),
    ("sliding_window", "sliding_window_size", "window_size", "attention_window_size", "attention_window", "window"),
    ("layer_types", "layers_block_type", "block_types", "layers_type"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "moe_top_k",
     "num_selected_experts", "n_experts_per_tok"),
    ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
     "ffn_dim_expert", "moe_inner_size", "expert_dim"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_experts_shared"),
    ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
    ("first_k_dense_replace", "num_dense_layers", "n_dense_layers", "moe_first_k_dense_replace"),
    ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "attn_bias"),
    ("mlp_bias", "use_mlp_bias", "ffn_bias"),
    ("tie_word_embeddings", "tie_embedding", "tie_embeddings", "share_embedding", "share_embeddings_and_output_weights",
     "weight_tying", "tie_weights"),
)
# Numbers of tokens, such as the one that stands for an image: no size, whatever else the name says.
TOKENS = re.compile(r"_token_(id|index)s?$|^(image|video|audio|vision)_(seq_length|token\w*)$")
# Layers that draft ahead: multi-token prediction.
DRAFT_LAYERS = re.compile(r"^(num_nextn_predict_layers|mtp_num_(hidden_)?layers|num_mtp_(modules|layers)|mtp_layers"
                          r"|n_mtp_layers|mtp_depth|num_predict_ahead_layers)$")
# Keys that say neither a size nor which parts there are, whole names: text, training, rotary positions, scales, files.
NO_SIZE = re.compile(
    r"\w*(dropout|pdrop|layerdrop|drop_path)(_rate|_prob)?|summary_(type|use_proj|activation|proj_to_labels)"
    r"|summary_first_dropout|\w*initializer(_range|_factor|_std)?|init_(std|range|method|method_std)|(_init_)?seed"
    r"|(\w+_)?(norm|rms|layernorm|mixer_rms)_(eps|epsilon)|eps|epsilon|(mlp_|mamba_|ffn_)?(hidden_)?act(ivation)?(_fn)?"
    r"|activation_function|afn|swiglu_(limit|alpha)|moe_renormalize|rope_(theta|scaling|parameters|interleaved?|type|base)"
    r"|rope_(local_base_freq|percent|ratio)|(global_|local_|layer_|sliding_)?rope_theta|no_rope_layers?(_interval)?"
    r"|rotary_(dim|pct|emb_base|base)|attn_rotary_emb|(partial_)?rotary_(factor|percent)|(use_)?mrope\w*|use_rope|alibi"
    r"|position_embedding_type|max_position_embeddings|original_max_position_embeddings|initial_context_length|n_ctx"
    r"|n_positions|seq_len(gth)?|max_seq(uence)?_len(gth)?|model_max_length|max_context_length|max_window_layers"
    r"|(torch_)?dtype|torchscript|use_bfloat16|\w*_in_fp32|tf_legacy_loss|\w*logits?_soft_?cap(ping)?|\w+_multiplier"
    r"|logits?_scal(e|ing)|num_logits_to_keep|query_pre_attn_scalar|scale_(emb|depth|embedding|attn_weights)"
    r"|scale_attn_by_inverse_layer_idx|scale_attention_softmax_in_fp32|reorder_and_upcast_attn|embedding_scale|mup_enabled"
    r"|dim_model_base|attention_(value_scale|multiplier|softmax_in_fp32|temperature_tuning)|attn_temperature_tuning"
    r"|floor_scale|attn_scale|route(d|r)?_scal(e|ing)(_factor)?|routed_scaling_factor|router_scaling_factor"
    r"|(moe_)?routed_scaling_factor|scoring_func|score_function|norm_topk_prob|topk_(method|group)|n_group|seq_aux"
    r"|(router_|load_balancing_)?aux_loss(_coef|_alpha|_weight)?|router_aux_loss_coef|aux_loss_alpha|z_loss_coef(ficient)?"
    r"|router_z_loss_coef|(router|input)_jitter(_noise)?(_eps)?|output_(router_logits|attentions|hidden_states|scores)"
    r"|moe_apply_router_weight_on_input|residual_in_fp32|apply_residual_connection_post_layernorm|slow_but_exact"
    r"|rescale_prenorm_residual|time_step_(min|max|floor|limit|scale|init_scheme)|clip_qkv|use_cache|cache_implementation"
    r"|transformers_version|_name_or_path|name|architectures|model_type|auto_map|id2label|label2id|num_labels|problem_type"
    r"|finetuning_task|task_specific_params|prefix|return_dict(_in_generate)?|pretraining_tp|tp_size|ep_size|use_mambapy"
    r"|use_associative_scan|quantization_config|tokenizer_class|max_length|min_length|temperature|top_[kp]|typical_p"
    r"|\w+_penalty|penalty_alpha|num_beams|num_beam_groups|do_sample|early_stopping|num_return_sequences|bad_words_ids"
    r"|(begin_)?suppress_tokens|(encoder_)?no_repeat_ngram_size|remove_invalid_values|is_(encoder_)?decoder"
    r"|add_cross_attention|tie_encoder_decoder|cross_attention_hidden_size|pruned_heads|chunk_size_feed_forward"
    r"|use_mtp|mtp_\w+|(_)?attn_implementation(_internal)?|use_flash_attention\w*|(use_)?flash_attn\w*|use_fused\w*"
    r"|gradient_checkpointing|unsloth_\w+|language|license|use_sliding_window|onnx|chat_template|sep_token|_commit_hash"
)
