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
    **dict.fromkeys(("mllama", "mllama_text_model"), "it attends across to a vision tower"),
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
# Keys that say neither a size nor which parts there are: text, tokens, training, rotary positions, scales, files.
NO_SIZE = re.compile(
    r"token|dropout|pdrop|layerdrop|drop_path|init|eps$|epsilon|^hidden_act|^hidden_activation$|^activation|^afn$|act_fn"
    r"|rope|rotary|^theta|dtype|torchscript|bfloat16|fp32|softcap|multiplier|scal(e|ing)|softmax|temperature|^top_[kp]$"
    r"|typical_p|penalty|beam|sampl|max_length|min_length|length_penalty|early_stop|return_|output_(att|hid|sco|rou)"
    r"|^use_cache$|cache_impl|version|_name_or_path|^name$|architectures|model_type|auto_map|id2label|label2id|problem_type"
    r"|finetuning|task_specific|prefix$|^summary_|loss|aux|jitter|noise|seed|checkpoint|pretraining_tp|^tp_|ep_size"
    r"|quantization|transformers|max_position|max_window|n_positions|n_ctx|seq_len|sequence_length|context|model_max"
    r"|score|scoring|norm_topk|topk_(method|group)|n_group|clip|limit|_min$|_max$|floor|time_step|interleave|reorder"
    r"|tokenizer|template|^mtp_|nextn|_mtp|license|date|use_mambapy|associative_scan|alibi|query_pre_attn|mup|logit"
    r"|bos|eos|pad_|sep_|image_|video_|position_embedding_type|slow_but|residual_in_fp|rescale|remove_invalid"
    r"|decoder_start|^is_decoder$|encoder_decoder|ngram|swiglu|dim_model_base|router_weight_on_input|connection_post_layernorm|_attn_implementation|flash|fused|kernel$|pretrain|train|unsloth|language|hub|commit"
)
