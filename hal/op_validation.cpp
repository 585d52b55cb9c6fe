#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "hal/device.h"
#include "hal/ops.h"

namespace stagecoach {

namespace {

/// Which dtypes an operand may have.
enum class Element : uint8_t {
  kStorage,       ///< fp32, bf16 or fp16; the same one for all storage operands of a call
  kStorageOrF32,  ///< that one or fp32
  kFloat,         ///< fp32, bf16 or fp16, on its own
  kF32,
  kI32,
  kF64,
  kU64,
  kI16,
  kBF16,
  kAny,
};

/// One operand. `shape` has a letter a dimension: equal letters are equal sizes within a call, '1'
/// is one element, a '+' after a letter means "at least". "*" is any shape, the same for all "*".
struct OperandRule {
  const char* name;
  Element element;
  const char* shape;
  bool optional = false;
};

/// What else a kind of call allows or needs.
enum Trait : uint8_t {
  kNone = 0,
  kCanAccumulate = 1,
  kInPlace = 2,   ///< an output may be exactly one of the inputs
  kSequence = 4,  ///< `sequence` is set, and rows are whole sequences
  kHeads = 8,     ///< heads, kv_heads and head_dim are set
  kDrops = 16,    ///< drop_probability is used
  kExperts = 32,  ///< rows are grouped by expert
};

struct KindRule {
  std::span<const OperandRule> outputs;
  std::span<const OperandRule> inputs;
  int traits = kNone;
};

constexpr Element kS = Element::kStorage;
constexpr Element kF = Element::kF32;
constexpr bool kOptional = true;

// Letters: R rows, C columns, V vocabulary, T sequence, H heads, O heads * head_dim, Q width of
// qkv, D head_dim, P half of it, N query and key heads, G width of a gate tensor.
constexpr OperandRule kEmbeddingForwardOut[] = {{"out", kS, "RC"}};
constexpr OperandRule kEmbeddingForwardIn[] = {
    {"ids", Element::kI32, "R"}, {"table", kS, "VC"}, {"positions", kS, "T+C", kOptional}};
constexpr OperandRule kEmbeddingBackwardOut[] = {{"table_grad", kF, "VC", kOptional},
                                                 {"positions_grad", kF, "T+C", kOptional}};
constexpr OperandRule kEmbeddingBackwardIn[] = {{"out_grad", kS, "RC"},
                                                {"ids", Element::kI32, "R"}};
constexpr OperandRule kLayerNormForwardOut[] = {
    {"out", kS, "RC"}, {"mean", kF, "R"}, {"rstd", kF, "R"}};
constexpr OperandRule kLayerNormForwardIn[] = {
    {"in", kS, "RC"}, {"weight", kS, "C"}, {"bias", kS, "C", kOptional}};
constexpr OperandRule kInGrad[] = {{"in_grad", kS, "RC"}};
constexpr OperandRule kLayerNormBackwardInputIn[] = {{"out_grad", kS, "RC"},
                                                     {"in", kS, "RC"},
                                                     {"weight", kS, "C"},
                                                     {"mean", kF, "R"},
                                                     {"rstd", kF, "R"}};
constexpr OperandRule kLayerNormBackwardWeightOut[] = {{"weight_grad", kF, "C"},
                                                       {"bias_grad", kF, "C", kOptional}};
constexpr OperandRule kLayerNormBackwardWeightIn[] = {
    {"out_grad", kS, "RC"}, {"in", kS, "RC"}, {"mean", kF, "R"}, {"rstd", kF, "R"}};
constexpr OperandRule kMatmulOut[] = {{"out", Element::kStorageOrF32, "MN"}};
constexpr OperandRule kMatmulIn[] = {
    {"a", kS, "MK"}, {"b", kS, "KN"}, {"bias", kS, "N", kOptional}};
constexpr OperandRule kColumnSumOut[] = {{"out", kF, "C"}};
constexpr OperandRule kColumnSumIn[] = {{"in", kS, "RC"}};
constexpr OperandRule kElementwiseOut[] = {{"out", kS, "*"}};
constexpr OperandRule kElementwiseIn[] = {{"in", kS, "*"}};
constexpr OperandRule kElementwiseInGrad[] = {{"in_grad", kS, "*"}};
constexpr OperandRule kGeluBackwardIn[] = {{"out_grad", kS, "*"}, {"in", kS, "*"}};
constexpr OperandRule kAttentionForwardOut[] = {{"out", kS, "RO"}, {"lse", kF, "RH"}};
constexpr OperandRule kAttentionForwardIn[] = {{"qkv", kS, "RQ"},
                                               {"sinks", kS, "H", kOptional},
                                               {"document_starts", Element::kI32, "R", kOptional}};
constexpr OperandRule kAttentionBackwardOut[] = {{"qkv_grad", kS, "RQ"}};
constexpr OperandRule kAttentionBackwardIn[] = {{"out_grad", kS, "RO"},
                                                {"qkv", kS, "RQ"},
                                                {"out", kS, "RO"},
                                                {"lse", kF, "RH"},
                                                {"sinks", kS, "H", kOptional},
                                                {"document_starts", Element::kI32, "R", kOptional}};
constexpr OperandRule kAttentionSinkBackwardOut[] = {{"sinks_grad", kF, "H"}};
constexpr OperandRule kAttentionSinkBackwardIn[] = {
    {"out_grad", kS, "RO"}, {"out", kS, "RO"}, {"lse", kF, "RH"}, {"sinks", kS, "H"}};
constexpr OperandRule kPairIn[] = {{"a", kS, "*"}, {"b", kS, "*"}};
constexpr OperandRule kDropoutIn[] = {{"in", kS, "*"}, {"residual", kS, "*", kOptional}};
constexpr OperandRule kCrossEntropyForwardOut[] = {{"loss", kF, "R"}, {"lse", kF, "R"}};
constexpr OperandRule kCrossEntropyForwardIn[] = {
    {"hidden", kS, "RC"}, {"weight", kS, "VC"}, {"labels", Element::kI32, "R"}};
constexpr OperandRule kCrossEntropyBackwardIn[] = {
    {"hidden", kS, "RC"}, {"weight", kS, "VC"}, {"labels", Element::kI32, "R"}, {"lse", kF, "R"}};
constexpr OperandRule kHiddenGrad[] = {{"hidden_grad", kS, "RC"}};
constexpr OperandRule kWeightGrad[] = {{"weight_grad", kF, "VC"}};
constexpr OperandRule kSquaredErrorForwardOut[] = {{"loss", kF, "R"}};
constexpr OperandRule kSquaredErrorIn[] = {{"prediction", kS, "RC"}, {"target", kF, "RC"}};
constexpr OperandRule kSquaredErrorBackwardOut[] = {{"prediction_grad", kS, "RC"}};
constexpr OperandRule kAccumulateOut[] = {{"out", kF, "*"}};
constexpr OperandRule kFloatOut[] = {{"out", Element::kFloat, "*"}};
constexpr OperandRule kFloatIn[] = {{"in", Element::kFloat, "*"}};
constexpr OperandRule kSumOut[] = {{"out", Element::kF64, "1"}};
constexpr OperandRule kChecksumOut[] = {{"out", Element::kU64, "1"}};
constexpr OperandRule kRmsNormForwardOut[] = {
    {"out", kS, "RC"}, {"rstd", kF, "R"}, {"sum_out", kS, "RC", kOptional}};
constexpr OperandRule kRmsNormForwardIn[] = {
    {"in", kS, "RC"}, {"weight", kS, "C"}, {"residual", kS, "RC", kOptional}};
constexpr OperandRule kRmsNormBackwardInputIn[] = {
    {"out_grad", kS, "RC"}, {"in", kS, "RC"}, {"weight", kS, "C"}, {"rstd", kF, "R"}};
constexpr OperandRule kNormWeightGrad[] = {{"weight_grad", kF, "C"}};
constexpr OperandRule kRmsNormBackwardWeightIn[] = {
    {"out_grad", kS, "RC"}, {"in", kS, "RC"}, {"rstd", kF, "R"}};
constexpr OperandRule kRotaryOut[] = {{"qkv", kS, "RQ"}};
constexpr OperandRule kRotaryIn[] = {{"cosines", kF, "T+P"}, {"sines", kF, "T+P"}};
constexpr OperandRule kQkNormForwardOut[] = {{"out", kS, "RQ"}, {"rstd", kF, "RN"}};
constexpr OperandRule kQkNormForwardIn[] = {
    {"in", kS, "RQ"}, {"q_weight", kS, "D"}, {"k_weight", kS, "D"}};
constexpr OperandRule kQkNormInGrad[] = {{"in_grad", kS, "RQ"}};
constexpr OperandRule kQkNormBackwardInputIn[] = {{"out_grad", kS, "RQ"},
                                                  {"in", kS, "RQ"},
                                                  {"q_weight", kS, "D"},
                                                  {"k_weight", kS, "D"},
                                                  {"rstd", kF, "RN"}};
constexpr OperandRule kQkNormBackwardWeightOut[] = {{"q_weight_grad", kF, "D"},
                                                    {"k_weight_grad", kF, "D"}};
constexpr OperandRule kQkNormBackwardWeightIn[] = {
    {"out_grad", kS, "RQ"}, {"in", kS, "RQ"}, {"rstd", kF, "RN"}};
constexpr OperandRule kGatedSiluForwardIn[] = {{"gate", kS, "RG"}, {"up", kS, "RG", kOptional}};
constexpr OperandRule kGatedSiluForwardOut[] = {{"out", kS, "RC"}};
constexpr OperandRule kGatedSiluBackwardOut[] = {{"gate_grad", kS, "RG"},
                                                 {"up_grad", kS, "RG", kOptional}};
constexpr OperandRule kGatedSiluBackwardIn[] = {
    {"out_grad", kS, "RC"}, {"gate", kS, "RG"}, {"up", kS, "RG", kOptional}};
constexpr OperandRule kAdamWOut[] = {
    {"parameters", kF, "*"}, {"first_moment", kF, "*"}, {"second_moment", kF, "*"}};
constexpr OperandRule kGradientIn[] = {{"gradient", Element::kFloat, "*"}};
constexpr OperandRule kMaster[] = {{"master", kF, "*"}};
constexpr OperandRule kMasterHalves[] = {{"high", Element::kBF16, "*"},
                                         {"remainder", Element::kI16, "*"}};
constexpr OperandRule kAnyIn[] = {{"in", Element::kAny, "*"}};

// Letters of experts: E of them, K chosen for each row, X grouped rows (R * K), F offsets (E + 1).
constexpr Element kI = Element::kI32;
constexpr OperandRule kRouteForwardOut[] = {{"choices", kI, "RK"}, {"weights", kF, "RK"}};
constexpr OperandRule kRouteForwardIn[] = {{"logits", kS, "RE"}};
constexpr OperandRule kRouteBackwardOut[] = {{"logits_grad", kS, "RE"}};
constexpr OperandRule kRouteBackwardIn[] = {
    {"weights_grad", kF, "RK"}, {"logits", kS, "RE"}, {"choices", kI, "RK"}, {"weights", kF, "RK"}};
constexpr OperandRule kBalanceForwardOut[] = {{"losses", kF, "R"}};
constexpr OperandRule kBalanceIn[] = {
    {"logits", kS, "RE"}, {"order", kI, "X"}, {"offsets", kI, "F"}, {"labels", kI, "R"}};
constexpr OperandRule kGroupRowsOut[] = {
    {"order", kI, "X"}, {"places", kI, "RK"}, {"offsets", kI, "F"}};
constexpr OperandRule kGroupRowsIn[] = {{"choices", kI, "RK"}};
constexpr OperandRule kGatherRowsOut[] = {{"out", kS, "XC"}};
constexpr OperandRule kGatherRowsIn[] = {
    {"in", kS, "RC"}, {"order", kI, "X"}, {"weights", kF, "RK", kOptional}};
constexpr OperandRule kCombineRowsOut[] = {{"out", kS, "RC"}};
constexpr OperandRule kCombineRowsIn[] = {{"in", kS, "XC"},
                                          {"places", kI, "RK"},
                                          {"weights", kF, "RK", kOptional},
                                          {"residual", kS, "RC", kOptional}};
constexpr OperandRule kCombineBackwardOut[] = {{"in_grad", kS, "XC"}, {"weights_grad", kF, "RK"}};
constexpr OperandRule kCombineBackwardIn[] = {{"product_grad", kS, "XC"},
                                              {"in", kS, "XC"},
                                              {"places", kI, "RK"},
                                              {"weights", kF, "RK"},
                                              {"out_grad", kS, "RO", kOptional},
                                              {"bias", kS, "EO", kOptional},
                                              {"choices", kI, "RK", kOptional}};
constexpr OperandRule kGroupedMatmulOut[] = {{"out", kS, "XO"}};
constexpr OperandRule kGroupedMatmulIn[] = {
    {"a", kS, "XC"}, {"b", kS, "ECO"}, {"offsets", kI, "F"}, {"bias", kS, "EO", kOptional}};
constexpr OperandRule kGroupedMatmulWeightOut[] = {{"weight_grad", kF, "ECO"}};
constexpr OperandRule kGroupedMatmulWeightIn[] = {
    {"a", kS, "XC"}, {"b", kS, "XO"}, {"offsets", kI, "F"}};
constexpr OperandRule kGroupedColumnSumOut[] = {{"out", kF, "EC"}};
constexpr OperandRule kGroupedColumnSumIn[] = {{"in", kS, "XC"}, {"offsets", kI, "F"}};

// In the order of OpKind.
const std::array<KindRule, kOpKindCount> kRules = {{
    {kEmbeddingForwardOut, kEmbeddingForwardIn, kSequence},
    {kEmbeddingBackwardOut, kEmbeddingBackwardIn, kSequence},
    {kLayerNormForwardOut, kLayerNormForwardIn},
    {kInGrad, kLayerNormBackwardInputIn, kCanAccumulate},
    {kLayerNormBackwardWeightOut, kLayerNormBackwardWeightIn},
    {kMatmulOut, kMatmulIn, kCanAccumulate},
    {kColumnSumOut, kColumnSumIn},
    {kElementwiseOut, kElementwiseIn, kInPlace},
    {kElementwiseInGrad, kGeluBackwardIn, kCanAccumulate | kInPlace},
    {kAttentionForwardOut, kAttentionForwardIn, kSequence | kHeads | kDrops},
    {kAttentionBackwardOut, kAttentionBackwardIn, kSequence | kHeads | kDrops},
    {kAttentionSinkBackwardOut, kAttentionSinkBackwardIn, kHeads},
    {kElementwiseOut, kPairIn, kInPlace},
    {kElementwiseOut, kPairIn, kCanAccumulate | kInPlace},
    {kElementwiseOut, kDropoutIn, kCanAccumulate | kInPlace | kDrops},
    {kCrossEntropyForwardOut, kCrossEntropyForwardIn},
    {kHiddenGrad, kCrossEntropyBackwardIn, kCanAccumulate},
    {kWeightGrad, kCrossEntropyBackwardIn},
    {kSquaredErrorForwardOut, kSquaredErrorIn},
    {kSquaredErrorBackwardOut, kSquaredErrorIn, kCanAccumulate},
    {kAccumulateOut, kFloatIn},
    {kFloatOut, kFloatIn},
    {kSumOut, kFloatIn},
    {kChecksumOut, kAnyIn},
    {kRmsNormForwardOut, kRmsNormForwardIn},
    {kInGrad, kRmsNormBackwardInputIn, kCanAccumulate},
    {kNormWeightGrad, kRmsNormBackwardWeightIn},
    {kRotaryOut, kRotaryIn, kSequence | kHeads},
    {kQkNormForwardOut, kQkNormForwardIn, kHeads},
    {kQkNormInGrad, kQkNormBackwardInputIn, kHeads},
    {kQkNormBackwardWeightOut, kQkNormBackwardWeightIn, kHeads},
    {kGatedSiluForwardOut, kGatedSiluForwardIn},
    {kGatedSiluBackwardOut, kGatedSiluBackwardIn},
    {kAdamWOut, kGradientIn},
    {kChecksumOut, kFloatIn},
    {kMaster, kMasterHalves},
    {kMasterHalves, kMaster},
    {kRouteForwardOut, kRouteForwardIn},
    {kRouteBackwardOut, kRouteBackwardIn},
    {kBalanceForwardOut, kBalanceIn, kSequence | kExperts},
    {kRouteBackwardOut, kBalanceIn, kSequence | kExperts},
    {kGroupRowsOut, kGroupRowsIn, kExperts},
    {kGatherRowsOut, kGatherRowsIn, kExperts},
    {kCombineRowsOut, kCombineRowsIn, kCanAccumulate | kExperts},
    {kCombineBackwardOut, kCombineBackwardIn, kInPlace | kExperts},
    {kGroupedMatmulOut, kGroupedMatmulIn, kExperts},
    {kGroupedMatmulWeightOut, kGroupedMatmulWeightIn, kExperts},
    {kGroupedColumnSumOut, kGroupedColumnSumIn, kExperts},
}};

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank; ++axis) {
    text += fmt::format("{}{}", axis > 0 ? "," : "", shape[axis]);
  }
  return text + "]";
}

bool is_storage(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// Checks one call; holds what earlier operands have fixed.
class Validator {
 public:
  Validator(const OpCall& call, const Device& device)
      : call_(call), rule_(kRules[static_cast<size_t>(call.kind)]), device_(device) {}

  Status validate() {
    STAGECOACH_RETURN_IF_ERROR(check_numbers());
    STAGECOACH_RETURN_IF_ERROR(for_each_operand(&Validator::check_presence));
    STAGECOACH_RETURN_IF_ERROR(check_combinations());
    STAGECOACH_RETURN_IF_ERROR(for_each_operand(&Validator::check_memory));
    // Inputs fix dtypes and sizes, so that messages blame the output that does not fit them.
    STAGECOACH_RETURN_IF_ERROR(check_all(&Validator::check_dtype));
    STAGECOACH_RETURN_IF_ERROR(check_all(&Validator::check_shape));
    STAGECOACH_RETURN_IF_ERROR(check_rows());
    STAGECOACH_RETURN_IF_ERROR(check_gate());
    STAGECOACH_RETURN_IF_ERROR(check_loss_terms());
    STAGECOACH_RETURN_IF_ERROR(check_adamw());
    STAGECOACH_RETURN_IF_ERROR(check_experts());
    return check_aliasing();
  }

 private:
  using Check = Status (Validator::*)(const OperandRule&, const TensorView&);

  Status refuse(const std::string& what) const {
    std::string_view label = call_.label.view();
    return invalid_argument(fmt::format("{} '{}': {}", op_kind_name(call_.kind), label, what));
  }

  Status check_each(std::span<const OperandRule> rules, const TensorView* tensors, Check check) {
    for (size_t i = 0; i < rules.size(); ++i) {
      STAGECOACH_RETURN_IF_ERROR((this->*check)(rules[i], tensors[i]));
    }
    return Status::ok();
  }

  /// Inputs first. `check` sees operands that are present only.
  Status check_all(Check check) {
    check_ = check;
    return for_each_operand(&Validator::check_if_present);
  }
  Status for_each_operand(Check check) {
    STAGECOACH_RETURN_IF_ERROR(check_each(rule_.inputs, call_.inputs.data(), check));
    return check_each(rule_.outputs, call_.outputs.data(), check);
  }
  Status check_if_present(const OperandRule& rule, const TensorView& tensor) {
    return tensor.is_none() ? Status::ok() : (this->*check_)(rule, tensor);
  }

  Status check_presence(const OperandRule& rule, const TensorView& tensor) {
    if (!tensor.is_none() || rule.optional) return Status::ok();
    return refuse(fmt::format("operand {} is none, expected a tensor", rule.name));
  }

  Status check_numbers() const;
  Status check_combinations() const;
  Status check_memory(const OperandRule& rule, const TensorView& tensor);
  Status check_dtype(const OperandRule& rule, const TensorView& tensor);
  Status check_shape(const OperandRule& rule, const TensorView& tensor);
  Status check_dim(const OperandRule& rule, const TensorView& tensor, int axis, char letter,
                   bool at_least);
  Status check_rows() const;
  Status check_gate() const;
  Status check_loss_terms() const;
  Status check_adamw() const;
  Status check_experts() const;
  Status check_aliasing() const;
  Status check_pair(const OperandRule& out_rule, const TensorView& out, const OperandRule& rule,
                    const TensorView& other, bool in_place) const;
  void bind_attention_widths();

  const OpCall& call_;
  const KindRule& rule_;
  const Device& device_;
  Check check_ = nullptr;
  const TensorView* storage_ = nullptr;  // the operand that fixed the storage dtype
  const char* storage_name_ = "";
  const TensorView* any_shape_ = nullptr;
  const char* any_shape_name_ = "";
  std::array<int64_t, 128> sizes_ = {};  // by letter; 0 is not fixed yet
};

Status Validator::check_numbers() const {
  if (call_.accumulate && !(rule_.traits & kCanAccumulate)) {
    return refuse("accumulate is set, expected unset: this operation has no such form");
  }
  if (!std::isfinite(call_.scale)) {
    return refuse(fmt::format("scale is {}, expected a finite number", call_.scale));
  }
  if (!(call_.epsilon >= 0.0f) || !std::isfinite(call_.epsilon)) {
    return refuse(fmt::format("epsilon is {}, expected a finite number >= 0", call_.epsilon));
  }
  if ((rule_.traits & kDrops) &&
      !(call_.drop_probability >= 0.0f && call_.drop_probability < 1.0f)) {
    return refuse(fmt::format("drop_probability is {}, expected [0, 1)", call_.drop_probability));
  }
  if (call_.window < 0) return refuse(fmt::format("window is {}, expected >= 0", call_.window));
  if ((rule_.traits & kSequence) && call_.sequence <= 0) {
    return refuse(fmt::format("sequence is {}, expected > 0", call_.sequence));
  }
  if (!(rule_.traits & kHeads)) return Status::ok();
  if (call_.heads <= 0 || call_.kv_heads <= 0 || call_.head_dim <= 0) {
    return refuse(fmt::format("heads, kv_heads and head_dim are {}, {} and {}, expected > 0",
                              call_.heads, call_.kv_heads, call_.head_dim));
  }
  if (call_.heads % call_.kv_heads != 0) {
    return refuse(fmt::format("heads is {}, expected a multiple of kv_heads {}", call_.heads,
                              call_.kv_heads));
  }
  constexpr int64_t kMost = int64_t{1} << 30;
  if (call_.heads > kMost || call_.head_dim > kMost) {
    return refuse(fmt::format("heads {} and head_dim {} are too large, expected <= {}", call_.heads,
                              call_.head_dim, kMost));
  }
  return Status::ok();
}

Status Validator::check_combinations() const {
  for (size_t i = rule_.outputs.size(); i < call_.outputs.size(); ++i) {
    if (!call_.outputs[i].is_none()) {
      return refuse(fmt::format("output {} is set, expected {} outputs", i, rule_.outputs.size()));
    }
  }
  for (size_t i = rule_.inputs.size(); i < call_.inputs.size(); ++i) {
    if (!call_.inputs[i].is_none()) {
      return refuse(fmt::format("input {} is set, expected {} inputs", i, rule_.inputs.size()));
    }
  }
  if (call_.kind == OpKind::kEmbeddingBackward && call_.outputs[0].is_none() &&
      call_.outputs[1].is_none()) {
    return refuse("table_grad and positions_grad are none, expected one of them");
  }
  if (call_.kind == OpKind::kRmsNormForward &&
      call_.outputs[2].is_none() != call_.inputs[2].is_none()) {
    return refuse("one of sum_out and residual is none, expected both or neither");
  }
  if (call_.kind == OpKind::kGatedSiluBackward &&
      call_.outputs[1].is_none() != call_.inputs[2].is_none()) {
    return refuse("one of up_grad and up is none, expected both or neither");
  }
  if (call_.kind == OpKind::kCombineBackward &&
      (call_.inputs[4].is_none() != call_.inputs[5].is_none() ||
       call_.inputs[4].is_none() != call_.inputs[6].is_none())) {
    return refuse("some of out_grad, bias and choices are none, expected all or none of them");
  }
  if (call_.kind == OpKind::kRotary && call_.head_dim % 2 != 0) {
    return refuse(fmt::format("head_dim is {}, expected an even number", call_.head_dim));
  }
  if (call_.kind == OpKind::kDropout && call_.accumulate && !call_.inputs[1].is_none()) {
    return refuse("residual is set with accumulate, expected one of the two");
  }
  return Status::ok();
}

Status Validator::check_memory(const OperandRule& rule, const TensorView& tensor) {
  if (tensor.is_none()) return Status::ok();
  ByteCount bytes = dtype_size_bytes(tensor.dtype);
  if (tensor.shape.rank < 0 || tensor.shape.rank > Shape::kMaxRank) {
    return refuse(fmt::format("operand {} has {} dimensions, expected at most {}", rule.name,
                              tensor.shape.rank, Shape::kMaxRank));
  }
  for (int axis = 0; axis < Shape::kMaxRank; ++axis) {
    bool unused = axis >= tensor.shape.rank;
    if (tensor.shape[axis] <= 0 || (unused && tensor.shape[axis] != 1)) {
      return refuse(fmt::format("operand {} has shape {}, expected positive sizes", rule.name,
                                shape_text(tensor.shape)));
    }
    Result<ByteCount> product = checked_multiply(bytes, tensor.shape[axis]);
    if (!product.is_ok()) {
      return refuse(fmt::format("operand {} has shape {} {}, expected a size that fits 63 bits",
                                rule.name, shape_text(tensor.shape), dtype_name(tensor.dtype)));
    }
    bytes = *product;
  }
  const BufferView& memory = tensor.memory;
  const Buffer& buffer = *memory.buffer;
  if (memory.offset < 0 || memory.size < 0 || memory.offset > buffer.size() ||
      memory.size > buffer.size() - memory.offset) {
    return refuse(fmt::format("operand {} is bytes {} + {} of buffer '{}', expected inside its {}",
                              rule.name, memory.offset, memory.size, buffer.label().view(),
                              buffer.size()));
  }
  if (bytes > memory.size) {
    return refuse(fmt::format("operand {} has {} bytes of memory, expected at least {} for {} {}",
                              rule.name, memory.size, bytes, shape_text(tensor.shape),
                              dtype_name(tensor.dtype)));
  }
  if (memory.offset % dtype_size_bytes(tensor.dtype) != 0) {
    return refuse(fmt::format("operand {} starts at byte {}, expected a multiple of {}", rule.name,
                              memory.offset, dtype_size_bytes(tensor.dtype)));
  }
  bool may_be_pinned = call_.kind == OpKind::kConvert && device_.info().kernels_reach_pinned;
  bool is_reached = buffer.kind() == MemoryKind::kDevice ||
                    (may_be_pinned && buffer.kind() == MemoryKind::kHostPinned);
  if (!is_reached) {
    return refuse(fmt::format("operand {} is {} memory, expected device memory", rule.name,
                              memory_kind_name(buffer.kind())));
  }
  // root() only looks up an address; it is not const because devices hand out what it returns.
  if (&buffer.device() != &const_cast<Device&>(device_).root()) {
    return refuse(fmt::format("operand {} is memory of {}, expected of {}", rule.name,
                              buffer.device().id(), device_.id()));
  }
  return Status::ok();
}

Status Validator::check_dtype(const OperandRule& rule, const TensorView& tensor) {
  auto expect = [&](bool holds, std::string_view expected) {
    if (holds) return Status::ok();
    return refuse(fmt::format("operand {} is {}, expected {}", rule.name, dtype_name(tensor.dtype),
                              expected));
  };
  switch (rule.element) {
    case Element::kF32:
      return expect(tensor.dtype == DType::kF32, "fp32");
    case Element::kI32:
      return expect(tensor.dtype == DType::kI32, "int32");
    case Element::kF64:
      return expect(tensor.dtype == DType::kF64, "fp64");
    case Element::kU64:
      return expect(tensor.dtype == DType::kU64, "uint64");
    case Element::kI16:
      return expect(tensor.dtype == DType::kI16, "int16");
    case Element::kBF16:
      return expect(tensor.dtype == DType::kBF16, "bf16");
    case Element::kFloat:
      return expect(is_storage(tensor.dtype), "fp32, bf16 or fp16");
    case Element::kStorage:
    case Element::kStorageOrF32:
      break;
    case Element::kAny:
      return tensor.size_bytes() % 4 == 0
                 ? Status::ok()
                 : refuse(fmt::format("operand {} has {} bytes, expected a multiple of 4",
                                      rule.name, tensor.size_bytes()));
  }
  if (rule.element == Element::kStorageOrF32 && tensor.dtype == DType::kF32) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(expect(is_storage(tensor.dtype), "fp32, bf16 or fp16"));
  if (storage_ == nullptr) {
    storage_ = &tensor;
    storage_name_ = rule.name;
  }
  bool or_f32 = rule.element == Element::kStorageOrF32 && storage_->dtype != DType::kF32;
  return expect(tensor.dtype == storage_->dtype,
                fmt::format("{}{} as {} is", dtype_name(storage_->dtype), or_f32 ? " or fp32" : "",
                            storage_name_));
}

void Validator::bind_attention_widths() {
  if (rule_.traits & kSequence) sizes_['T'] = call_.sequence;
  if (!(rule_.traits & kHeads)) return;
  sizes_['H'] = call_.heads;
  sizes_['O'] = call_.heads * call_.head_dim;
  sizes_['Q'] = (call_.heads + 2 * call_.kv_heads) * call_.head_dim;
  sizes_['D'] = call_.head_dim;
  sizes_['P'] = call_.head_dim / 2;
  sizes_['N'] = call_.heads + call_.kv_heads;
}

Status Validator::check_shape(const OperandRule& rule, const TensorView& tensor) {
  bind_attention_widths();
  std::string_view letters = rule.shape;
  if (letters == "*") {
    if (any_shape_ == nullptr) {
      any_shape_ = &tensor;
      any_shape_name_ = rule.name;
    }
    if (tensor.shape == any_shape_->shape) return Status::ok();
    return refuse(fmt::format("operand {} has shape {}, expected {} as {} has", rule.name,
                              shape_text(tensor.shape), shape_text(any_shape_->shape),
                              any_shape_name_));
  }
  bool is_dense = call_.kind == OpKind::kMatmul;
  bool is_matmul = is_dense || call_.kind == OpKind::kGroupedMatmul;
  bool swapped = (is_dense && &tensor == &call_.inputs[0] && call_.transpose_a) ||
                 (is_matmul && &tensor == &call_.inputs[1] && call_.transpose_b);
  std::string order;
  for (char letter : letters) {
    if (letter != '+') order += letter;
  }
  if (tensor.shape.rank != static_cast<int>(order.size())) {
    return refuse(fmt::format("operand {} has shape {}, expected {} dimension(s)", rule.name,
                              shape_text(tensor.shape), order.size()));
  }
  if (swapped) std::swap(order[order.size() - 2], order[order.size() - 1]);
  for (int axis = 0; axis < tensor.shape.rank; ++axis) {
    bool at_least = axis == 0 && letters.size() > 1 && letters[1] == '+';
    STAGECOACH_RETURN_IF_ERROR(
        check_dim(rule, tensor, axis, order[static_cast<size_t>(axis)], at_least));
  }
  return Status::ok();
}

Status Validator::check_dim(const OperandRule& rule, const TensorView& tensor, int axis,
                            char letter, bool at_least) {
  int64_t& size = sizes_[static_cast<size_t>(letter)];
  if (letter == '1') size = 1;
  if (size == 0) size = tensor.shape[axis];
  int64_t found = tensor.shape[axis];
  if (found == size || (at_least && found >= size)) return Status::ok();
  return refuse(fmt::format("operand {} has shape {}, expected dimension {} to be {}{}", rule.name,
                            shape_text(tensor.shape), axis, at_least ? "at least " : "", size));
}

/// A gate tensor is as wide as the result, or twice that when it holds `up` too.
Status Validator::check_gate() const {
  if (sizes_['G'] == 0) return Status::ok();
  const GatedNumbers& numbers = call_.gated;
  if (!std::isfinite(numbers.alpha) || !std::isfinite(numbers.up_offset) ||
      !(numbers.limit > 0.0f)) {
    return refuse(
        fmt::format("alpha is {}, up_offset {}, limit {}: expected finite ones and a "
                    "limit > 0",
                    numbers.alpha, numbers.up_offset, numbers.limit));
  }
  size_t up = call_.kind == OpKind::kGatedSiluForward ? 1 : 2;
  if (numbers.is_interleaved && !call_.inputs[up].is_none()) {
    return refuse("up is set with is_interleaved, expected one tensor of both");
  }
  int64_t expected = call_.inputs[up].is_none() ? 2 * sizes_['C'] : sizes_['C'];
  if (sizes_['G'] == expected) return Status::ok();
  return refuse(fmt::format("gate has {} columns, expected {} for {} columns of the result",
                            sizes_['G'], expected, sizes_['C']));
}

Status Validator::check_loss_terms() const {
  const LossTerms& terms = call_.loss_terms;
  bool smooths = terms.label_smoothing >= 0.0f && terms.label_smoothing < 1.0f;
  if (smooths && terms.z_loss >= 0.0f && std::isfinite(terms.z_loss)) return Status::ok();
  return refuse(fmt::format(
      "z_loss is {}, label_smoothing {}: expected a finite number >= 0 and one in [0, 1)",
      terms.z_loss, terms.label_smoothing));
}

Status Validator::check_adamw() const {
  const AdamWNumbers& numbers = call_.adamw;
  if (call_.kind != OpKind::kAdamW) return Status::ok();
  bool betas = numbers.beta1 >= 0.0f && numbers.beta1 < 1.0f && numbers.beta2 >= 0.0f &&
               numbers.beta2 < 1.0f;
  if (betas && numbers.step >= 1 && std::isfinite(numbers.learning_rate) &&
      std::isfinite(numbers.weight_decay)) {
    return Status::ok();
  }
  return refuse(fmt::format(
      "beta1 {}, beta2 {}, step {}, learning rate {}, weight decay {}: "
      "expected betas in [0, 1), a step >= 1 and finite rates",
      numbers.beta1, numbers.beta2, numbers.step, numbers.learning_rate, numbers.weight_decay));
}

/// Sizes that are products of others, or one more.
Status Validator::check_experts() const {
  if (call_.kind == OpKind::kRouteForward && sizes_['K'] > sizes_['E']) {
    return refuse(fmt::format("{} experts are chosen, expected at most the {} that there are",
                              sizes_['K'], sizes_['E']));
  }
  if (!(rule_.traits & kExperts)) return Status::ok();
  constexpr int64_t kMostPlaces = std::numeric_limits<int32_t>::max();
  int64_t places = sizes_['X'];
  if (places > kMostPlaces) {
    return refuse(fmt::format("there are {} grouped rows, expected <= {}", places, kMostPlaces));
  }
  // Of gather_rows without weights nothing else says how many choices a row has.
  int64_t rows = sizes_['R'];
  int64_t choices = sizes_['K'];
  if (rows != 0 && (choices == 0 ? places % rows != 0 : places != rows * choices)) {
    return refuse(fmt::format("there are {} grouped rows, expected {} for each of {} rows", places,
                              choices == 0 ? "as many" : std::to_string(choices), rows));
  }
  if (sizes_['F'] == 1 ||
      (sizes_['E'] != 0 && sizes_['F'] != 0 && sizes_['F'] != sizes_['E'] + 1)) {
    return refuse(fmt::format("there are {} offsets, expected one more than experts, {}",
                              sizes_['F'], sizes_['E']));
  }
  return Status::ok();
}

Status Validator::check_rows() const {
  int64_t rows = sizes_['R'];
  if (!(rule_.traits & kSequence) || rows % call_.sequence == 0) return Status::ok();
  return refuse(
      fmt::format("there are {} rows, expected whole sequences of {} rows", rows, call_.sequence));
}

Status Validator::check_pair(const OperandRule& out_rule, const TensorView& out,
                             const OperandRule& rule, const TensorView& other,
                             bool in_place) const {
  if (out.is_none() || other.is_none() || out.memory.buffer != other.memory.buffer) {
    return Status::ok();
  }
  ByteCount out_end = out.memory.offset + out.size_bytes();
  ByteCount other_end = other.memory.offset + other.size_bytes();
  if (out.memory.offset >= other_end || other.memory.offset >= out_end) return Status::ok();
  bool same = out.memory.offset == other.memory.offset && out_end == other_end;
  if (in_place && same) return Status::ok();
  return refuse(
      fmt::format("output {} shares bytes {} to {} of buffer '{}' with operand {}, "
                  "expected {}",
                  out_rule.name, std::max(out.memory.offset, other.memory.offset),
                  std::min(out_end, other_end), out.memory.buffer->label().view(), rule.name,
                  in_place ? "the same tensor or none in common" : "none"));
}

Status Validator::check_aliasing() const {
  for (size_t i = 0; i < rule_.outputs.size(); ++i) {
    for (size_t k = i + 1; k < rule_.outputs.size(); ++k) {
      STAGECOACH_RETURN_IF_ERROR(check_pair(rule_.outputs[i], call_.outputs[i], rule_.outputs[k],
                                            call_.outputs[k], false));
    }
    for (size_t k = 0; k < rule_.inputs.size(); ++k) {
      STAGECOACH_RETURN_IF_ERROR(check_pair(rule_.outputs[i], call_.outputs[i], rule_.inputs[k],
                                            call_.inputs[k], rule_.traits & kInPlace));
    }
  }
  return Status::ok();
}

}  // namespace

Status validate_op(const OpCall& call, const Device& device) {
  if (static_cast<int>(call.kind) >= kOpKindCount) {
    return invalid_argument(fmt::format("operation kind {} is unknown, expected < {}",
                                        static_cast<int>(call.kind), kOpKindCount));
  }
  return Validator(call, device).validate();
}

}  // namespace stagecoach
