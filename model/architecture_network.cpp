#include "model/architecture_network.h"

#include <fmt/format.h>
#include <utility>
#include <vector>

#include "hal/op_call.h"
#include "model/basic_segment.h"
#include "model/lora_options.h"
#include "model/shape_chain.h"

namespace stagecoach {

namespace {

class ShapeBuilder {
 public:
  ShapeBuilder(const Architecture& architecture, const ShapeOptions& options)
      : a_(architecture), options_(options) {}

  Result<Network> build() {
    network_.name = std::string(model_family_name(a_.family));
    network_.dtype = options_.dtype;
    network_.label = {DType::kI32, 1};
    STAGECOACH_RETURN_IF_ERROR(add_embedding());
    for (int64_t layer = 0; layer < a_.layers; ++layer) {
      STAGECOACH_RETURN_IF_ERROR(add_decoder_layer(layer));
    }
    STAGECOACH_RETURN_IF_ERROR(add_head());
    STAGECOACH_RETURN_IF_ERROR(network_.validate());
    return std::move(network_);
  }

 private:
  bool is_gpt2() const { return a_.family == ModelFamily::kGpt2; }
  bool is_frozen() const { return options_.lora_rank > 0; }
  ShapeChain chain(std::string name) const {
    return {std::move(name), options_.dtype, options_.lora_rank};
  }

  int add_block(ParameterBlock block) {
    network_.blocks.push_back(std::move(block));
    return static_cast<int>(network_.blocks.size()) - 1;
  }
  Status add_layer(ShapeChain& chain, const std::vector<int>& blocks) {
    for (int block : blocks) {
      chain.spec.uses.push_back({block, network_.blocks[block].site_count++});
    }
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer,
                                make_segment_layer(std::move(chain.spec), network_.blocks));
    network_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  ParameterBlock table(const char* name, int64_t rows) const {
    ParameterBlock block;
    block.name = name;
    block.is_frozen = is_frozen();
    block.add(fmt::format("{}.weight", name), Shape{rows, a_.hidden}, true, {});
    return block;
  }

  Status add_embedding() {
    ShapeChain layer = chain("embedding");
    layer.spec.input_has_gradient = false;
    int ids = layer.activation("ids", DType::kI32, 1);
    int out = layer.activation("embedded", options_.dtype, a_.hidden);
    SegmentIo io;
    io.reads = {ids};
    io.writes = {out};
    if (!is_frozen()) io.saved_for_weight = {ids};
    layer.segment("lookup", std::move(io), lookup_flop());
    if (is_gpt2() && options_.has_documents) add_positions(layer, out);
    token_block_ = add_block(table("tokens", a_.vocabulary));
    std::vector<int> blocks = {token_block_};
    if (is_gpt2()) blocks.push_back(add_block(table("positions", a_.positions)));
    return add_layer(layer, blocks);
  }

  /// Learned positions that begin anew in each document are looked up by row, and added to
  /// `tokens`.
  void add_positions(ShapeChain& layer, int tokens) const {
    int places = layer.activation("positions", options_.dtype, a_.hidden);
    int sum = layer.activation("sum", options_.dtype, a_.hidden);
    SegmentIo lookup, add;
    lookup.writes = {places};
    lookup.row_inputs = {RowInput::kPositions};
    layer.segment("positions", std::move(lookup), lookup_flop());
    add.reads = {tokens, places};
    add.writes = {sum};
    add.weightless = true;
    layer.segment("sum", std::move(add), [columns = a_.hidden](const MicroBatchShape& shape) {
      double flop = elementwise_flop(OpKind::kAdd, shape.rows(), columns);
      return SegmentFlop{flop, 2 * flop, 0};
    });
  }

  std::function<SegmentFlop(const MicroBatchShape&)> lookup_flop() const {
    return [columns = a_.hidden, frozen = is_frozen()](const MicroBatchShape& shape) {
      auto price = [&](OpKind kind) { return elementwise_flop(kind, shape.rows(), columns); };
      double weight = frozen ? 0 : price(OpKind::kEmbeddingBackward);
      return SegmentFlop{price(OpKind::kEmbeddingForward), 0, weight};
    };
  }

  /// LayerNorm for GPT-2, RMSNorm for the others; returns what it yields.
  int add_norm(ShapeChain& layer, std::string_view name, int in) const {
    int out = layer.activation(fmt::format("{}.out", name), options_.dtype, a_.hidden);
    SegmentIo io;
    io.reads = {in};
    io.saved_for_input = {in};
    layer.vector(fmt::format("{}.weight", name), a_.hidden);
    if (is_gpt2()) layer.vector(fmt::format("{}.bias", name), a_.hidden);
    for (int statistic = is_gpt2() ? 0 : 1; statistic < 2; ++statistic) {
      int index = layer.activation(fmt::format("{}.statistic", name), DType::kF32, 1);
      io.writes.push_back(index);
      io.saved_for_input.push_back(index);
    }
    io.writes.push_back(out);
    if (!is_frozen()) io.saved_for_weight = io.saved_for_input;
    layer.segment(
        name, std::move(io),
        norm_flop(is_gpt2() ? OpKind::kLayerNormForward : OpKind::kRmsNormForward,
                  is_gpt2() ? OpKind::kLayerNormBackwardInput : OpKind::kRmsNormBackwardInput,
                  is_gpt2() ? OpKind::kLayerNormBackwardWeight : OpKind::kRmsNormBackwardWeight,
                  a_.hidden));
    return out;
  }

  std::function<SegmentFlop(const MicroBatchShape&)> norm_flop(OpKind forward, OpKind input,
                                                               OpKind weight,
                                                               int64_t columns) const {
    return [=, frozen = is_frozen()](const MicroBatchShape& shape) {
      auto price = [&](OpKind kind) { return elementwise_flop(kind, shape.rows(), columns); };
      return SegmentFlop{price(forward), price(input), frozen ? 0 : price(weight)};
    };
  }

  /// Of heads whose positions are not learned.
  ShapeRotation rotation() const {
    return is_gpt2() ? ShapeRotation{} : ShapeRotation{a_.heads, a_.kv_heads, a_.head_dim};
  }

  /// Norm of each query and key head, where the family has one; then they are turned.
  int add_head_norms(ShapeChain& layer, int qkv) const {
    if (!a_.norms_heads()) return qkv;
    int out = layer.activation("qk_norm.out", options_.dtype, a_.qkv_columns());
    int statistic = layer.activation("qk_norm.statistic", DType::kF32, a_.heads + a_.kv_heads);
    layer.vector("q_norm.weight", a_.head_dim);
    layer.vector("k_norm.weight", a_.head_dim);
    SegmentIo io;
    io.reads = {qkv};
    io.writes = {statistic, out};
    layer.declare_rotation(rotation(), io);
    io.saved_for_input = {qkv, statistic};
    if (!is_frozen()) io.saved_for_weight = io.saved_for_input;
    auto norm = norm_flop(OpKind::kQkNormForward, OpKind::kQkNormBackwardInput,
                          OpKind::kQkNormBackwardWeight, a_.qkv_columns());
    layer.segment("qk_norm", std::move(io), [norm, turned = rotation()](const MicroBatchShape& s) {
      SegmentFlop flop = norm(s);
      flop.forward += turned.flop(s.rows());
      flop.backward_input += turned.flop(s.rows());
      return flop;
    });
    return out;
  }

  int add_attention(ShapeChain& layer, int qkv, int64_t window) const {
    int lse = layer.activation("attn.lse", DType::kF32, a_.heads);
    int out = layer.activation("attn.out", options_.dtype, a_.heads * a_.head_dim);
    if (a_.family == ModelFamily::kGptOss) layer.vector("attn.sinks", a_.heads);
    bool learns_sinks = a_.family == ModelFamily::kGptOss && !is_frozen();
    SegmentIo io;
    io.reads = {qkv};
    io.writes = {lse, out};
    io.saved_for_input = {qkv, lse, out};
    if (options_.has_documents) io.row_inputs = {RowInput::kDocumentStarts};
    if (learns_sinks) io.saved_for_weight = {lse, out};
    io.weightless = !learns_sinks;
    auto flop = [a = a_, window, learns_sinks](const MicroBatchShape& shape) {
      OpCall call;
      call.inputs[0].shape = Shape{shape.rows(), a.heads * a.head_dim};
      call.sequence = shape.sequence;
      call.heads = a.heads;
      call.head_dim = a.head_dim;
      call.window = window;
      auto price = [&](OpKind kind) {
        call.kind = kind;
        return op_flop(call);
      };
      return SegmentFlop{price(OpKind::kAttentionForward), price(OpKind::kAttentionBackward),
                         learns_sinks ? price(OpKind::kAttentionSinkBackward) : 0};
    };
    layer.segment("attn", std::move(io), flop);
    return out;
  }

  /// GELU of one half or gated SiLU of two, `choices` of them a row.
  int add_activation(ShapeChain& layer, int in, int64_t choices) const {
    int64_t columns = choices * a_.intermediate;
    int out = layer.activation("mlp.product", options_.dtype, columns);
    SegmentIo io;
    io.reads = {in};
    io.writes = {out};
    io.saved_for_input = {in};
    io.weightless = true;
    layer.segment("mlp.act", std::move(io), [gelu = is_gpt2(), columns](const MicroBatchShape& s) {
      OpCall forward, backward;
      forward.kind = gelu ? OpKind::kGeluForward : OpKind::kGatedSiluForward;
      backward.kind = gelu ? OpKind::kGeluBackward : OpKind::kGatedSiluBackward;
      forward.inputs[0].shape = forward.outputs[0].shape = Shape{s.rows(), columns};
      backward.inputs[0].shape = Shape{s.rows(), columns};
      return SegmentFlop{op_flop(forward), op_flop(backward), 0};
    });
    return out;
  }

  /// Which experts each row goes to, and by how much each counts.
  RowChoice add_choice(ShapeChain& layer, int in) const {
    ShapeLinear router;
    router.name = "mlp.router";
    router.in = in;
    router.in_columns = a_.hidden;
    router.out_columns = {a_.experts};
    router.has_adapters = options_.adapts_experts;
    router.has_bias = a_.family == ModelFamily::kGptOss;
    int logits = layer.linear(router);
    int64_t count = a_.experts_per_token;
    RowChoice choice;
    choice.weights = layer.activation("mlp.weights", DType::kF32, count);
    choice.choices = layer.activation("mlp.choices", DType::kI32, count);
    choice.order = layer.activation("mlp.order", DType::kI32, count);
    choice.places = layer.activation("mlp.places", DType::kI32, count);
    choice.offsets = layer.activation("mlp.offsets", DType::kI32, a_.experts + 1, 1);
    bool balances = options_.has_router_loss;
    layer.spec.reports = balances;
    layer.segment("mlp.route", route_io(logits, choice, balances),
                  [experts = a_.experts, count, balances](const MicroBatchShape& shape) {
                    return route_flop(shape.rows(), experts, count, balances);
                  });
    return choice;
  }

  void add_mlp(ShapeChain& layer, int in, int residual) const {
    ShapeLinear up, down;
    up.name = is_gpt2() ? "mlp.c_fc" : "mlp.gate_up_proj";
    up.in = in;
    up.in_columns = a_.hidden;
    up.out_columns.assign(is_gpt2() ? 1 : 2, a_.intermediate);
    if (a_.family == ModelFamily::kGptOss) up.out_columns = {2 * a_.intermediate};
    down.name = is_gpt2() ? "mlp.c_proj" : "mlp.down_proj";
    down.residual = residual;
    down.in_columns = a_.intermediate;
    down.out_columns = {a_.hidden};
    up.has_bias = down.has_bias = a_.mlp_bias;
    if (a_.has_experts()) {
      up.experts = down.experts = a_.experts;
      up.has_adapters = down.has_adapters = options_.adapts_experts;
      up.choices = down.choices = a_.experts_per_token;
      up.choice = down.choice = add_choice(layer, in);
      down.combines = true;
    }
    down.in = add_activation(layer, layer.linear(up), up.choices);
    layer.linear(down);
  }

  Status add_decoder_layer(int64_t index) {
    ShapeChain layer = chain(fmt::format("layers.{}", index));
    int in = layer.activation("in", options_.dtype, a_.hidden);
    ShapeLinear qkv, output;
    qkv.name = "attn.qkv_proj";
    qkv.in = add_norm(layer, "norm_1", in);
    qkv.in_columns = a_.hidden;
    qkv.out_columns = {a_.heads * a_.head_dim, a_.kv_heads * a_.head_dim,
                       a_.kv_heads * a_.head_dim};
    if (is_gpt2()) qkv.out_columns = {a_.qkv_columns()};
    qkv.has_bias = output.has_bias = a_.attention_bias;
    if (!a_.norms_heads()) qkv.rotation = rotation();
    int heads = add_head_norms(layer, layer.linear(qkv));
    output.name = "attn.o_proj";
    output.in = add_attention(layer, heads, a_.window(index));
    output.residual = in;
    output.in_columns = a_.heads * a_.head_dim;
    output.out_columns = {a_.hidden};
    int middle = layer.linear(output);
    add_mlp(layer, add_norm(layer, "norm_2", middle), middle);
    std::vector<int> blocks = {add_block(std::move(layer.base))};
    if (is_frozen()) blocks.push_back(add_block(std::move(layer.adapters)));
    return add_layer(layer, blocks);
  }

  Status add_head() {
    ShapeChain layer = chain("head");
    int hidden = add_norm(layer, "norm", layer.activation("in", options_.dtype, a_.hidden));
    int lse = layer.activation("lse", DType::kF32, 1);
    int loss = layer.activation("loss", DType::kF32, 1);
    SegmentIo io;
    io.reads = {hidden};
    io.writes = {lse, loss};
    io.row_inputs = {RowInput::kLabels};
    io.saved_for_input = {hidden, lse};
    if (!is_frozen()) io.saved_for_weight = io.saved_for_input;
    layer.segment("loss", std::move(io),
                  [a = a_, frozen = is_frozen()](const MicroBatchShape& shape) {
                    auto price = [&](OpKind kind) {
                      OpCall call;
                      call.kind = kind;
                      call.inputs[0].shape = Shape{shape.rows(), a.hidden};
                      call.inputs[1].shape = Shape{a.vocabulary, a.hidden};
                      return op_flop(call);
                    };
                    double weight = frozen ? 0 : price(OpKind::kLinearCrossEntropyBackwardWeight);
                    return SegmentFlop{price(OpKind::kLinearCrossEntropyForward),
                                       price(OpKind::kLinearCrossEntropyBackwardInput), weight};
                  });
    int norm = add_block(std::move(layer.base));
    int head = a_.ties_head ? token_block_ : add_block(table("lm_head", a_.vocabulary));
    return add_layer(layer, {norm, head});
  }

  const Architecture a_;
  const ShapeOptions options_;
  Network network_;
  int token_block_ = 0;
};

}  // namespace

Result<Network> make_shape_network(const Architecture& architecture, const ShapeOptions& options) {
  STAGECOACH_RETURN_IF_ERROR(check_architecture(architecture));
  if (options.lora_rank < 0 || options.lora_rank > kMostLoraRank) {
    return invalid_argument(
        fmt::format("a LoRA rank is from 1 to {}, not {}", kMostLoraRank, options.lora_rank));
  }
  if (options.dtype != DType::kF32 && options.dtype != DType::kBF16 &&
      options.dtype != DType::kF16) {
    return invalid_argument(fmt::format("a model computes in fp32, bf16 or fp16, not in {}",
                                        dtype_name(options.dtype)));
  }
  return ShapeBuilder(architecture, options).build();
}

}  // namespace stagecoach
