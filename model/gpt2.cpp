#include "model/gpt2.h"

#include <cmath>
#include <fmt/format.h>

#include "model/chain_builder.h"
#include "model/lora_blocks.h"
#include "model/segments.h"

namespace stagecoach {

namespace {

/// Random sites inside a layer.
constexpr uint32_t kEmbeddingSite = 0;
constexpr uint32_t kAttentionSite = 0;
constexpr uint32_t kAttentionProjectionSite = 1;
constexpr uint32_t kMlpProjectionSite = 2;

/// Builds blocks and layers of one network.
class Gpt2Builder {
 public:
  Gpt2Builder(Gpt2Config config, NetworkHead head, DType dtype, const LoraOptions& lora,
              bool has_documents)
      : config_(config),
        head_(head),
        dtype_(dtype),
        has_documents_(has_documents),
        lora_(lora, dtype) {
    // Generation must not drop anything, whoever runs the network.
    if (head == NetworkHead::kLogits) {
      config_.resid_pdrop = config_.embd_pdrop = config_.attn_pdrop = 0;
    }
  }

  Result<Network> build() {
    network_.name = "gpt2";
    network_.dtype = dtype_;
    if (head_ == NetworkHead::kLoss) network_.label = {DType::kI32, 1};
    add_blocks();
    lora_.begin(network_);
    STAGECOACH_RETURN_IF_ERROR(add_layer(embedding()));
    for (int64_t i = 0; i < config_.n_layer; ++i) STAGECOACH_RETURN_IF_ERROR(add_layer(block(i)));
    STAGECOACH_RETURN_IF_ERROR(add_layer(head()));
    STAGECOACH_RETURN_IF_ERROR(lora_.check());
    STAGECOACH_RETURN_IF_ERROR(network_.validate());
    return std::move(network_);
  }

 private:
  static constexpr int kTokenBlock = 0;
  static constexpr int kPositionBlock = 1;
  static constexpr int kFirstLayerBlock = 2;
  // Order of parameters inside a decoder block.
  enum Parameter : int {
    kLn1Weight,
    kLn1Bias,
    kAttnWeight,
    kAttnBias,
    kAttnProjWeight,
    kAttnProjBias,
    kLn2Weight,
    kLn2Bias,
    kFcWeight,
    kFcBias,
    kMlpProjWeight,
    kMlpProjBias,
  };

  Status add_layer(ChainBuilder chain) {
    chain.spec.dtype = dtype_;
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                                make_segment_layer(std::move(chain.spec), network_.blocks));
    network_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  Initializer normal(double scale = 1) const {
    return {Initializer::Kind::kNormal, config_.initializer_range * scale};
  }

  void add_norm(ParameterBlock& block, const std::string& prefix) const {
    block.add(prefix + ".weight", Shape{config_.n_embd}, false, {Initializer::Kind::kOnes, 0});
    block.add(prefix + ".bias", Shape{config_.n_embd}, false, {Initializer::Kind::kZeros, 0});
  }

  static void add_linear(ParameterBlock& block, const std::string& prefix, int64_t in, int64_t out,
                         Initializer initializer) {
    block.add(prefix + ".weight", Shape{in, out}, true, initializer);
    block.add(prefix + ".bias", Shape{out}, false, {Initializer::Kind::kZeros, 0});
  }

  void add_blocks() {
    ParameterBlock tokens{.name = "wte", .parameters = {}, .element_count = 0, .site_count = 2};
    tokens.add("transformer.wte.weight", Shape{config_.vocab_size, config_.n_embd}, true, normal());
    network_.blocks.push_back(std::move(tokens));
    ParameterBlock positions{.name = "wpe", .parameters = {}, .element_count = 0, .site_count = 1};
    positions.add("transformer.wpe.weight", Shape{config_.n_positions, config_.n_embd}, true,
                  normal());
    network_.blocks.push_back(std::move(positions));
    for (int64_t i = 0; i < config_.n_layer; ++i) network_.blocks.push_back(layer_block(i));
    ParameterBlock norm{.name = "ln_f", .parameters = {}, .element_count = 0, .site_count = 1};
    add_norm(norm, "transformer.ln_f");
    network_.blocks.push_back(std::move(norm));
  }

  ParameterBlock layer_block(int64_t index) const {
    ParameterBlock block{
        .name = fmt::format("h.{}", index), .parameters = {}, .element_count = 0, .site_count = 1};
    std::string prefix = "transformer." + block.name;
    int64_t width = config_.n_embd;
    // GPT-2 scales what adds to the residual stream by the number of additions, two a layer.
    Initializer residual = normal(1.0 / std::sqrt(2.0 * static_cast<double>(config_.n_layer)));
    add_norm(block, prefix + ".ln_1");
    add_linear(block, prefix + ".attn.c_attn", width, 3 * width, normal());
    add_linear(block, prefix + ".attn.c_proj", width, width, residual);
    add_norm(block, prefix + ".ln_2");
    add_linear(block, prefix + ".mlp.c_fc", width, config_.n_inner, normal());
    add_linear(block, prefix + ".mlp.c_proj", config_.n_inner, width, residual);
    return block;
  }

  ChainBuilder embedding() const {
    int64_t width = config_.n_embd;
    float drop = static_cast<float>(config_.embd_pdrop);
    ChainBuilder chain;
    chain.spec.name = "embedding";
    chain.spec.input_has_gradient = false;
    ParameterRef table{chain.use(kTokenBlock, 0), 0};
    ParameterRef positions{chain.use(kPositionBlock, 0), 0};
    int ids = chain.activation("ids", DType::kI32, 1);
    int embedded = chain.activation("embedded", dtype_, width);
    if (has_documents_) {
      // Positions begin anew in each document, so they are looked up by row.
      int tokens = embedded;
      int places = chain.activation("positions", dtype_, width);
      embedded = chain.activation("sum", dtype_, width);
      chain.segment<EmbeddingSegment>("lookup", {ids, tokens, table, {}, width});
      chain.segment<EmbeddingSegment>(
          "positions", {EmbeddingSegment::Options::kRowPositions, places, positions, {}, width});
      chain.segment<AddSegment>("sum", {tokens, places, embedded, width});
    } else {
      chain.segment<EmbeddingSegment>("lookup", {ids, embedded, table, positions, width});
    }
    if (drop > 0) {
      int out = chain.activation("out", dtype_, width);
      chain.segment<DropoutSegment>("dropout", {embedded, out, width, drop, kEmbeddingSite});
    }
    return chain;
  }

  void add_layer_norm(ChainBuilder& chain, std::string_view name, int in, int out,
                      ParameterRef weight, ParameterRef bias) const {
    LayerNormSegment::Options options;
    options.in = in;
    options.out = out;
    options.mean = chain.activation(fmt::format("{}.mean", name), DType::kF32, 1);
    options.rstd = chain.activation(fmt::format("{}.rstd", name), DType::kF32, 1);
    options.weight = weight;
    options.bias = bias;
    options.columns = config_.n_embd;
    options.epsilon = static_cast<float>(config_.layer_norm_epsilon);
    chain.segment<LayerNormSegment>(name, options);
  }

  /// out = residual + dropout(in weight + bias); adds `out` as the chain's newest activation.
  int add_projection(ChainBuilder& chain, std::string_view name, int in, int64_t in_columns,
                     int residual, int weight, uint32_t site) {
    LinearSegment::Options options;
    options.in = in;
    options.residual = residual;
    options.weight = {0, weight};
    options.bias = {0, weight + 1};
    options.in_columns = in_columns;
    options.out_columns = config_.n_embd;
    options.drop_probability = static_cast<float>(config_.resid_pdrop);
    options.site = site;
    if (options.drop_probability > 0) {
      options.product = chain.activation(fmt::format("{}.product", name), dtype_, config_.n_embd);
    }
    options.adapter = lora_.add(chain, name, {{name, config_.n_embd}}, in_columns);
    options.out = chain.activation(fmt::format("{}.out", name), dtype_, config_.n_embd);
    chain.segment<LinearSegment>(name, options);
    return options.out;
  }

  int add_linear_segment(ChainBuilder& chain, std::string_view name, int in, int64_t out_columns,
                         int weight) {
    LinearSegment::Options options;
    options.in = in;
    options.adapter = lora_.add(chain, name, {{name, out_columns}}, config_.n_embd);
    options.out = chain.activation(fmt::format("{}.out", name), dtype_, out_columns);
    options.weight = {0, weight};
    options.bias = {0, weight + 1};
    options.in_columns = config_.n_embd;
    options.out_columns = out_columns;
    chain.segment<LinearSegment>(name, options);
    return options.out;
  }

  int add_attention(ChainBuilder& chain, int qkv) const {
    AttentionSegment::Options options;
    options.qkv = qkv;
    options.lse = chain.activation("attn.lse", DType::kF32, config_.n_head);
    options.out = chain.activation("attn.out", dtype_, config_.n_embd);
    options.heads = options.kv_heads = config_.n_head;
    options.head_dim = config_.n_embd / config_.n_head;
    options.drop_probability = static_cast<float>(config_.attn_pdrop);
    options.site = kAttentionSite;
    options.has_documents = has_documents_;
    chain.segment<AttentionSegment>("attn", options);
    return options.out;
  }

  ChainBuilder block(int64_t index) {
    int64_t width = config_.n_embd;
    ChainBuilder chain;
    chain.spec.name = fmt::format("h.{}", index);
    chain.use(kFirstLayerBlock + static_cast<int>(index), 0);
    lora_.begin_layer(chain, "transformer." + chain.spec.name);
    int in = chain.activation("in", dtype_, width);
    int norm1 = chain.activation("ln_1.out", dtype_, width);
    add_layer_norm(chain, "ln_1", in, norm1, {0, kLn1Weight}, {0, kLn1Bias});
    int qkv = add_linear_segment(chain, "attn.c_attn", norm1, 3 * width, kAttnWeight);
    int attended = add_attention(chain, qkv);
    int middle = add_projection(chain, "attn.c_proj", attended, width, in, kAttnProjWeight,
                                kAttentionProjectionSite);
    int norm2 = chain.activation("ln_2.out", dtype_, width);
    add_layer_norm(chain, "ln_2", middle, norm2, {0, kLn2Weight}, {0, kLn2Bias});
    int up = add_linear_segment(chain, "mlp.c_fc", norm2, config_.n_inner, kFcWeight);
    int gelu = chain.activation("mlp.gelu.out", dtype_, config_.n_inner);
    chain.segment<GeluSegment>("mlp.gelu", {up, gelu, config_.n_inner});
    add_projection(chain, "mlp.c_proj", gelu, config_.n_inner, middle, kMlpProjWeight,
                   kMlpProjectionSite);
    lora_.end_layer(network_);
    return chain;
  }

  ChainBuilder head() const {
    int64_t width = config_.n_embd;
    ChainBuilder chain;
    chain.spec.name = "head";
    int norm_use = chain.use(kFirstLayerBlock + static_cast<int>(config_.n_layer), 0);
    ParameterRef table{chain.use(kTokenBlock, 1), 0};
    int in = chain.activation("in", dtype_, width);
    int norm = chain.activation("ln_f.out", dtype_, width);
    add_layer_norm(chain, "ln_f", in, norm, {norm_use, 0}, {norm_use, 1});
    if (head_ == NetworkHead::kLogits) {
      int logits = chain.activation("logits", DType::kF32, config_.vocab_size);
      chain.segment<LinearLogitsSegment>("logits",
                                         {norm, logits, table, width, config_.vocab_size});
      return chain;
    }
    int lse = chain.activation("lse", DType::kF32, 1);
    int loss = chain.activation("loss", DType::kF32, 1);
    chain.segment<LinearCrossEntropySegment>("loss",
                                             {norm, lse, loss, table, width, config_.vocab_size});
    return chain;
  }

  Gpt2Config config_;
  NetworkHead head_;
  DType dtype_;
  bool has_documents_;
  LoraBlocks lora_;
  Network network_;
};

}  // namespace

Result<Network> make_gpt2(const Gpt2Config& config, NetworkHead head, DType dtype,
                          const LoraOptions& lora, bool has_documents) {
  STAGECOACH_RETURN_IF_ERROR(check_gpt2_config(config));
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return invalid_argument(
        fmt::format("a model computes in fp32, bf16 or fp16, not in {}", dtype_name(dtype)));
  }
  return Gpt2Builder(config, head, dtype, lora, has_documents).build();
}

}  // namespace stagecoach
