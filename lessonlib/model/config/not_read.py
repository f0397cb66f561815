"""What is refused by name, and why; and which keys that a family does not read are an error, and which are harmless."""

from typing import Any

# fmt: off
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
bailing_hybrid bitnet blt cpmant diffllama doge dory dots3_note dots3_note_text gpt_neox_japanese helium hrm_text hy_v4
inkling_text inkling2_text inkling2_loop_text jetmoe minimax minimax_m3_vl_text modernbert-decoder moshi phi4_multimodal
qwen4_exp qwen4_exp_text recurrent_gemma rwkv xlstm zaya
"""
IRREGULAR = {
    **dict.fromkeys(_NO_ROW.split(), "its layers have parts of their own, which no row of the table describes"),
    **dict.fromkeys(("llama4", "llama4_text"), "its layers attend within chunks, so the span is a sawtooth"),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa", "axk2"),
                    "its queries attend to the tokens that an indexer picks, while all are stored"),
    **dict.fromkeys(("gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text"),
                    "its layers share caches, take inputs of their own and differ in head size"),
    "nemotron_h": "a layer is one of mixer, feed-forward or experts, and the experts may work in a latent of their own",
    "longcat_flash": "a layer has two attentions, two feed-forwards and experts that compute nothing",
    "mllama": "it attends across to a vision tower",
    "jamba": "its Mamba layers have norms of their own",
    "falcon_h1": "a layer has attention and Mamba side by side",
    **dict.fromkeys(("zamba", "zamba2"), "its blocks share weights through adapters"),
    **dict.fromkeys(("dbrx", "mpt"), "its sizes stand in nested objects"),
}

# --- which keys are structural: set and unread, they are an error ---
STRUCTURAL = (
    r"expert|moe|lora|mamba|ssm|conv|linear_|rnn|state_size|layer_types|layers_type|block_type|block_config|per_layer|layers_block"
    r"|layer_indices|layer_list|attn_type|index_|indexer|shared_kv|kv_shared|cross_att|encoder|^hc_|altup|laurel|window"
    r"|sliding|chunk_size|vision|audio|sink|mla|hybrid|dense|dff|nope_head|rope_head|q_head_dim|k_head_dim|v_head_dim"
    r"|head_dim|qk_norm|qk_layernorm|pruned_heads|layer_norm_elementwise|bidirectional|loop|recurrence"
    r"|output_vocab|embed_proj|emb_dim|embedding_size|gating|gate_|_gate|bias$|tie_|multi_query|parallel_attn"
    r"|post_norm|sandwich|sub_norm|use_post|relative|compress|n_groups"
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
        "num_beam_groups", "clip_qkv",
    )),
    "moe_layer_freq": 1, "mamba_ssm_cache_dtype": "float32", "mamba_ssm_dtype": "float32",  # as the state is counted
}
SAME_THING = (  # names of one thing: an unread one is harmless where it equals the one that was read
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "word_embed_proj_dim", "conv_dim", "conv_dim_out",
     "block_dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "num_attention_heads_per_layer"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "n_kv_head", "kv_heads", "num_heads_kv",
     "num_query_groups"),
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
)
