#include "model/decoder.h"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

#include "model/chain_builder.h"
#include "model/lora_blocks.h"
#include "model/segments.h"

namespace stagecoach {

namespace {

constexpr uint32_t kDecoderAttentionSite = 0;
constexpr int kTokenBlock = 0;
constexpr int kRotaryBlock = 1;
constexpr int kFirstLayerBlock = 2;

/// Indices of a decoder block's parameters; of several that make one product, the first. -1: none.
struct LayerParameters {
  int input_norm = -1, qkv = -1, qkv_bias = -1, sinks = -1, router_bias = -1, q_norm = -1,
      k_norm = -1, output = -1, output_bias = -1, middle_norm = -1, router = -1, gate_up = -1,
      gate_up_bias = -1, down = -1, down_bias = -1;
};

/// Of the blocks a decoder layer uses; what is frozen comes first, as planning expects.
constexpr int kRotaryUse = 0;
constexpr int kLayerUse = 1;

ParameterRef layer_parameter(int index) {
  return index < 0 ? ParameterRef{} : ParameterRef{kLayerUse, index};
}

/// Builds blocks and layers of one network.
class DecoderBuilder {
 public:
  DecoderBuilder(DecoderConfig config, NetworkHead head, DType dtype, int64_t sequence,
                 const LoraOptions& lora, bool has_documents)
      : config_(std::move(config)),
        a_(config_.architecture),
        head_(head),
        dtype_(dtype),
        sequence_(sequence),
        has_documents_(has_documents),
        lora_(lora, dtype) {
    // Generation must not drop anything, whoever runs the network.
    if (head == NetworkHead::kLogits) config_.attention_drop = 0;
  }

  Result<Network> build() {
    network_.name = std::string(model_family_name(a_.family));
    network_.dtype = dtype_;
    if (head_ == NetworkHead::kLoss) network_.label = {DType::kI32, 1};
    add_blocks();
    lora_.begin(network_);
    STAGECOACH_RETURN_IF_ERROR(add_layer(embedding()));
    for (int64_t i = 0; i < a_.layers; ++i) STAGECOACH_RETURN_IF_ERROR(add_layer(layer(i)));
    STAGECOACH_RETURN_IF_ERROR(add_layer(head()));
    STAGECOACH_RETURN_IF_ERROR(lora_.check());
    STAGECOACH_RETURN_IF_ERROR(network_.validate());
    return std::move(network_);
  }

 private:
  Status add_layer(ChainBuilder chain) {
    chain.spec.dtype = dtype_;
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                                make_segment_layer(std::move(chain.spec), network_.blocks));
    network_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  int norm_block() const { return kFirstLayerBlock + static_cast<int>(a_.layers); }
  int head_block() const { return a_.ties_head ? kTokenBlock : norm_block() + 1; }

  int add_norm_parameter(ParameterBlock& block, const std::string& name, int64_t columns) const {
    return block.add(name, Shape{columns}, false, {Initializer::Kind::kOnes, 0});
  }
  /// Matrices [rows, columns] of one product; the index of the first.
  int add_matrices(ParameterBlock& block, std::string_view prefix,
                   const std::vector<std::pair<std::string_view, int64_t>>& names_and_rows,
                   int64_t columns) const {
    auto first = static_cast<int>(block.parameters.size());
    for (const auto& [name, rows] : names_and_rows) {
      block.add(fmt::format("{}.{}.weight", prefix, name), Shape{rows, columns}, true,
                {Initializer::Kind::kNormal, config_.initializer_range});
    }
    return first;
  }
  bool is_gpt_oss() const { return a_.family == ModelFamily::kGptOss; }

  /// A matrix [rows, columns] for each expert.
  int add_stack(ParameterBlock& block, const std::string& name, int64_t rows,
                int64_t columns) const {
    return block.add(name, Shape{a_.experts, rows, columns}, true,
                     {Initializer::Kind::kNormal, config_.initializer_range});
  }
  static int add_biases(ParameterBlock& block, std::string_view prefix,
                        const std::vector<std::pair<std::string_view, int64_t>>& names_and_rows) {
    auto first = static_cast<int>(block.parameters.size());
    for (const auto& [name, rows] : names_and_rows) {
      block.add(fmt::format("{}.{}.bias", prefix, name), Shape{rows}, false,
                {Initializer::Kind::kZeros, 0});
    }
    return first;
  }

  ParameterBlock table(const char* block_name, const char* name, int sites) const {
    ParameterBlock block;
    block.name = block_name;
    block.site_count = sites;
    block.add(name, Shape{a_.vocabulary, a_.hidden}, true,
              {Initializer::Kind::kNormal, config_.initializer_range});
    return block;
  }

  void add_blocks() {
    network_.blocks.push_back(table("tokens", "model.embed_tokens.weight", a_.ties_head ? 2 : 1));
    ParameterBlock rotary;
    rotary.name = "rotary";
    rotary.element_count = HeadRotation::table_elements(a_.head_dim, sequence_, dtype_);
    rotary.site_count = static_cast<int>(a_.layers);
    rotary.is_frozen = true;
    rotary.constant = [scaling = config_.rotary, head_dim = a_.head_dim, sequence = sequence_,
                       dtype = dtype_] {
      return HeadRotation::table_values(scaling, head_dim, sequence, dtype);
    };
    network_.blocks.push_back(std::move(rotary));
    for (int64_t i = 0; i < a_.layers; ++i) network_.blocks.push_back(layer_block(i));
    ParameterBlock norm;
    norm.name = "norm";
    norm.site_count = 1;
    add_norm_parameter(norm, "model.norm.weight", a_.hidden);
    network_.blocks.push_back(std::move(norm));
    if (!a_.ties_head) network_.blocks.push_back(table("lm_head", "lm_head.weight", 1));
  }

  /// All layers have the same parameters, so the last block's numbers serve all.
  ParameterBlock layer_block(int64_t index) {
    ParameterBlock block;
    block.name = fmt::format("layers.{}", index);
    block.site_count = 1;
    std::string prefix = "model." + block.name;
    std::string attention = prefix + ".self_attn", mlp = prefix + ".mlp";
    int64_t queries = a_.heads * a_.head_dim, keys = a_.kv_heads * a_.head_dim;
    LayerParameters& p = parameters_;
    p.input_norm = add_norm_parameter(block, prefix + ".input_layernorm.weight", a_.hidden);
    p.qkv = add_matrices(block, attention,
                         {{"q_proj", queries}, {"k_proj", keys}, {"v_proj", keys}}, a_.hidden);
    if (a_.attention_bias) {
      p.qkv_bias =
          add_biases(block, attention, {{"q_proj", queries}, {"k_proj", keys}, {"v_proj", keys}});
    }
    if (is_gpt_oss()) {
      p.sinks = block.add(attention + ".sinks", Shape{a_.heads}, false,
                          {Initializer::Kind::kNormal, config_.initializer_range});
    }
    if (a_.norms_heads()) {
      p.q_norm = add_norm_parameter(block, attention + ".q_norm.weight", a_.head_dim);
      p.k_norm = add_norm_parameter(block, attention + ".k_norm.weight", a_.head_dim);
    }
    p.output = add_matrices(block, attention, {{"o_proj", a_.hidden}}, queries);
    if (a_.attention_bias) p.output_bias = add_biases(block, attention, {{"o_proj", a_.hidden}});
    p.middle_norm =
        add_norm_parameter(block, prefix + ".post_attention_layernorm.weight", a_.hidden);
    if (a_.has_experts()) {
      add_expert_parameters(block, mlp);
      return block;
    }
    p.gate_up = add_matrices(
        block, mlp, {{"gate_proj", a_.intermediate}, {"up_proj", a_.intermediate}}, a_.hidden);
    if (a_.mlp_bias) {
      p.gate_up_bias =
          add_biases(block, mlp, {{"gate_proj", a_.intermediate}, {"up_proj", a_.intermediate}});
    }
    p.down = add_matrices(block, mlp, {{"down_proj", a_.hidden}}, a_.intermediate);
    if (a_.mlp_bias) p.down_bias = add_biases(block, mlp, {{"down_proj", a_.hidden}});
    return block;
  }

  /// GPT-OSS has its matrices as [in, out], with gates and ups in turn.
  void add_expert_parameters(ParameterBlock& block, const std::string& mlp) {
    LayerParameters& p = parameters_;
    std::string_view router = is_gpt_oss() ? "router" : "gate";
    std::string up = mlp + ".experts.gate_up_proj", down = mlp + ".experts.down_proj";
    p.router = add_matrices(block, mlp, {{router, a_.experts}}, a_.hidden);
    if (!is_gpt_oss()) {
      p.gate_up = add_stack(block, up, 2 * a_.intermediate, a_.hidden);
      p.down = add_stack(block, down, a_.hidden, a_.intermediate);
      return;
    }
    auto add_stack_bias = [&](const std::string& name, int64_t columns) {
      return block.add(name + "_bias", Shape{a_.experts, columns}, false,
                       {Initializer::Kind::kZeros, 0});
    };
    p.router_bias = add_biases(block, mlp, {{router, a_.experts}});
    p.gate_up = add_stack(block, up, a_.hidden, 2 * a_.intermediate);
    p.gate_up_bias = add_stack_bias(up, 2 * a_.intermediate);
    p.down = add_stack(block, down, a_.intermediate, a_.hidden);
    p.down_bias = add_stack_bias(down, a_.hidden);
  }

  ChainBuilder embedding() const {
    ChainBuilder chain;
    chain.spec.name = "embedding";
    chain.spec.input_has_gradient = false;
    ParameterRef tokens{chain.use(kTokenBlock, 0), 0};
    int ids = chain.activation("ids", DType::kI32, 1);
    int out = chain.activation("embedded", dtype_, a_.hidden);
    chain.segment<EmbeddingSegment>("lookup", {ids, out, tokens, {}, a_.hidden});
    return chain;
  }

  int add_norm(ChainBuilder& chain, std::string_view name, int in, ParameterRef weight) const {
    RmsNormSegment::Options options;
    options.in = in;
    options.rstd = chain.activation(fmt::format("{}.rstd", name), DType::kF32, 1);
    options.out = chain.activation(fmt::format("{}.out", name), dtype_, a_.hidden);
    options.weight = weight;
    options.columns = a_.hidden;
    options.epsilon = static_cast<float>(config_.norm_epsilon);
    chain.segment<RmsNormSegment>(name, options);
    return options.out;
  }

  HeadRotation rotation(ChainBuilder& chain) const {
    HeadRotation rotation;
    rotation.table = {kRotaryUse, 0};
    rotation.positions = sequence_;
    rotation.heads = a_.heads;
    rotation.kv_heads = a_.kv_heads;
    rotation.head_dim = a_.head_dim;
    if (dtype_ != DType::kF32) {
      rotation.sum = chain.activation("rotation", DType::kF32, a_.head_dim);
    }
    return rotation;
  }

  LinearSegment::Options linear(int in, int64_t in_columns, int64_t out_columns, int weight,
                                int bias) const {
    LinearSegment::Options options;
    options.in = in;
    options.in_columns = in_columns;
    options.out_columns = out_columns;
    options.weight = layer_parameter(weight);
    options.bias = layer_parameter(bias);
    options.is_transposed = true;
    return options;
  }
  int add_linear(ChainBuilder& chain, std::string_view name, LinearSegment::Options options) const {
    options.out = chain.activation(fmt::format("{}.out", name), dtype_, options.out_columns);
    chain.segment<LinearSegment>(name, options);
    return options.out;
  }

  /// Queries, keys and values, turned by their positions.
  int add_heads(ChainBuilder& chain, int in) {
    LinearSegment::Options options =
        linear(in, a_.hidden, a_.qkv_columns(), parameters_.qkv, parameters_.qkv_bias);
    if (!a_.norms_heads()) options.rotation = rotation(chain);
    int64_t keys = a_.kv_heads * a_.head_dim;
    options.adapter = lora_.add(chain, "attn.qkv_proj",
                                {{"self_attn.q_proj", a_.heads * a_.head_dim},
                                 {"self_attn.k_proj", keys},
                                 {"self_attn.v_proj", keys}},
                                a_.hidden);
    int qkv = add_linear(chain, "attn.qkv_proj", options);
    if (!a_.norms_heads()) return qkv;
    QkNormSegment::Options norm;
    norm.in = qkv;
    norm.rstd = chain.activation("qk_norm.rstd", DType::kF32, a_.heads + a_.kv_heads);
    norm.rotation = rotation(chain);
    norm.out = chain.activation("qk_norm.out", dtype_, a_.qkv_columns());
    norm.q_weight = layer_parameter(parameters_.q_norm);
    norm.k_weight = layer_parameter(parameters_.k_norm);
    norm.epsilon = static_cast<float>(config_.norm_epsilon);
    chain.segment<QkNormSegment>("qk_norm", norm);
    return norm.out;
  }

  int add_attention(ChainBuilder& chain, int qkv, int64_t window) const {
    AttentionSegment::Options options;
    options.qkv = qkv;
    options.lse = chain.activation("attn.lse", DType::kF32, a_.heads);
    options.out = chain.activation("attn.out", dtype_, a_.heads * a_.head_dim);
    options.heads = a_.heads;
    options.kv_heads = a_.kv_heads;
    options.head_dim = a_.head_dim;
    options.window = window;
    options.sinks = layer_parameter(parameters_.sinks);
    options.drop_probability = static_cast<float>(config_.attention_drop);
    options.site = kDecoderAttentionSite;
    options.has_documents = has_documents_;
    chain.segment<AttentionSegment>("attn", options);
    return options.out;
  }

  ChainBuilder layer(int64_t index) {
    const LayerParameters& p = parameters_;
    ChainBuilder chain;
    chain.spec.name = fmt::format("layers.{}", index);
    chain.use(kRotaryBlock, static_cast<int>(index));
    chain.use(kFirstLayerBlock + static_cast<int>(index), 0);
    lora_.begin_layer(chain, "model." + chain.spec.name);
    int in = chain.activation("in", dtype_, a_.hidden);
    int heads = add_heads(chain, add_norm(chain, "norm_1", in, layer_parameter(p.input_norm)));
    LinearSegment::Options output =
        linear(add_attention(chain, heads, a_.window(index)), a_.heads * a_.head_dim, a_.hidden,
               p.output, p.output_bias);
    output.residual = in;
    output.adapter =
        lora_.add(chain, "attn.o_proj", {{"self_attn.o_proj", a_.hidden}}, a_.heads * a_.head_dim);
    int middle = add_linear(chain, "attn.o_proj", output);
    int norm = add_norm(chain, "norm_2", middle, layer_parameter(p.middle_norm));
    if (a_.has_experts()) {
      add_experts(chain, norm, middle);
    } else {
      add_mlp(chain, norm, middle);
    }
    lora_.end_layer(network_);
    return chain;
  }

  GatedNumbers gate_numbers() const {
    if (!is_gpt_oss()) return {};
    return {static_cast<float>(config_.gate_alpha), static_cast<float>(config_.gate_limit), 1.0f,
            true};
  }

  /// `count` MLPs or experts to a row.
  int add_gate(ChainBuilder& chain, int gate_up, int64_t count) const {
    int product = chain.activation("mlp.product", dtype_, count * a_.intermediate);
    chain.segment<GatedSiluSegment>("mlp.act",
                                    {gate_up, product, a_.intermediate, count, gate_numbers()});
    return product;
  }

  void add_mlp(ChainBuilder& chain, int norm, int residual) {
    const LayerParameters& p = parameters_;
    LinearSegment::Options up =
        linear(norm, a_.hidden, 2 * a_.intermediate, p.gate_up, p.gate_up_bias);
    up.adapter = lora_.add(chain, "mlp.gate_up_proj",
                           {{"mlp.gate_proj", a_.intermediate}, {"mlp.up_proj", a_.intermediate}},
                           a_.hidden);
    int product = add_gate(chain, add_linear(chain, "mlp.gate_up_proj", up), 1);
    LinearSegment::Options down = linear(product, a_.intermediate, a_.hidden, p.down, p.down_bias);
    down.residual = residual;
    down.adapter =
        lora_.add(chain, "mlp.down_proj", {{"mlp.down_proj", a_.hidden}}, a_.intermediate);
    add_linear(chain, "mlp.down_proj", down);
  }

  /// Times the mean over layers of what balances experts; a loss has it, logits do not.
  double router_loss() const { return head_ == NetworkHead::kLoss ? config_.router_loss : 0; }

  /// Which experts each row goes to.
  RowChoice add_route(ChainBuilder& chain, int norm) const {
    int64_t count = a_.experts_per_token;
    RouteSegment::Options route;
    route.logits = add_linear(
        chain, "mlp.router",
        linear(norm, a_.hidden, a_.experts, parameters_.router, parameters_.router_bias));
    route.choice.weights = chain.activation("mlp.weights", DType::kF32, count);
    route.choice.choices = chain.activation("mlp.choices", DType::kI32, count);
    route.choice.order = chain.activation("mlp.order", DType::kI32, count);
    route.choice.places = chain.activation("mlp.places", DType::kI32, count);
    route.choice.offsets = chain.activation("mlp.offsets", DType::kI32, a_.experts + 1, 1);
    route.experts = a_.experts;
    route.count = count;
    route.over_chosen = config_.normalizes_choice;
    route.balance = static_cast<float>(router_loss() / static_cast<double>(a_.layers));
    chain.spec.reports = route.balance > 0;
    chain.segment<RouteSegment>("mlp.route", route);
    return route.choice;
  }

  void add_experts(ChainBuilder& chain, int norm, int residual) const {
    int64_t count = a_.experts_per_token;
    ExpertLinearSegment::Options up;
    up.in = norm;
    up.choice = add_route(chain, norm);
    up.sizes = {a_.experts, count, a_.hidden, 2 * a_.intermediate};
    up.rows = chain.activation("mlp.gate_up_proj.by_expert", dtype_, count * a_.hidden);
    up.out = chain.activation("mlp.gate_up_proj.out", dtype_, count * up.sizes.out_columns);
    up.weight = layer_parameter(parameters_.gate_up);
    up.bias = layer_parameter(parameters_.gate_up_bias);
    up.is_transposed = !is_gpt_oss();
    chain.segment<ExpertLinearSegment>("mlp.gate_up_proj", up);
    ExpertSumSegment::Options down;
    down.in = add_gate(chain, up.out, count);
    down.residual = residual;
    down.choice = up.choice;
    down.sizes = {a_.experts, count, a_.intermediate, a_.hidden};
    down.products = chain.activation("mlp.down_proj.by_expert", dtype_, count * a_.hidden);
    down.out = chain.activation("mlp.down_proj.out", dtype_, a_.hidden);
    down.weight = layer_parameter(parameters_.down);
    down.bias = layer_parameter(parameters_.down_bias);
    down.is_transposed = !is_gpt_oss();
    chain.segment<ExpertSumSegment>("mlp.down_proj", down);
  }

  ChainBuilder head() const {
    ChainBuilder chain;
    chain.spec.name = "head";
    ParameterRef norm_weight{chain.use(norm_block(), 0), 0};
    ParameterRef table{chain.use(head_block(), a_.ties_head ? 1 : 0), 0};
    int in = chain.activation("in", dtype_, a_.hidden);
    int norm = add_norm(chain, "norm", in, norm_weight);
    if (head_ == NetworkHead::kLogits) {
      int logits = chain.activation("logits", DType::kF32, a_.vocabulary);
      chain.segment<LinearLogitsSegment>("logits", {norm, logits, table, a_.hidden, a_.vocabulary});
      return chain;
    }
    int lse = chain.activation("lse", DType::kF32, 1);
    int loss = chain.activation("loss", DType::kF32, 1);
    chain.segment<LinearCrossEntropySegment>("loss",
                                             {norm, lse, loss, table, a_.hidden, a_.vocabulary});
    return chain;
  }

  DecoderConfig config_;
  const Architecture& a_;
  NetworkHead head_;
  DType dtype_;
  int64_t sequence_;
  bool has_documents_;
  LayerParameters parameters_;
  LoraBlocks lora_;
  Network network_;
};

}  // namespace

Result<Network> make_decoder(const DecoderConfig& config, NetworkHead head, DType dtype,
                             int64_t sequence, const LoraOptions& lora, bool has_documents) {
  STAGECOACH_RETURN_IF_ERROR(check_decoder_config(config));
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return invalid_argument(
        fmt::format("a model computes in fp32, bf16 or fp16, not in {}", dtype_name(dtype)));
  }
  constexpr int64_t kLongestSequence = int64_t{1} << 26;
  if (sequence < 1 || sequence > kLongestSequence) {
    return invalid_argument(
        fmt::format("a sequence has 1 to {} tokens, not {}", kLongestSequence, sequence));
  }
  return DecoderBuilder(config, head, dtype, sequence, lora, has_documents).build();
}

}  // namespace stagecoach
