#include "backends/gpu/gpu_op_plans.h"

namespace stagecoach {

namespace {

void plan_gated_silu(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kForward = STAGECOACH_STORAGE_KERNELS("gated_silu_forward");
  static constexpr StorageKernels kBackward = STAGECOACH_STORAGE_KERNELS("gated_silu_backward");
  static constexpr StorageKernels kPairs = STAGECOACH_STORAGE_KERNELS("gated_pairs_forward");
  static constexpr StorageKernels kPairsBackward =
      STAGECOACH_STORAGE_KERNELS("gated_pairs_backward");
  bool forward = call.kind == OpKind::kGatedSiluForward;
  const TensorView& result = forward ? call.outputs[0] : call.inputs[0];
  int64_t columns = result.shape[1];
  // In one tensor, a row's ups follow its gates.
  uint64_t offset = static_cast<uint64_t>(columns * dtype_size_bytes(result.dtype));
  auto pair = [&](const TensorView& gate, const TensorView& up) {
    builder.tensor(gate);
    if (up.is_none()) {
      builder.unsigned_word(tensor_address(gate) + offset);
    } else {
      builder.tensor(up);
    }
  };
  const TensorView& gate = call.inputs[forward ? 0 : 1];
  auto add_numbers = [&] {
    builder.real(call.gated.alpha).real(call.gated.limit).real(call.gated.up_offset);
  };
  if (call.gated.is_interleaved) {
    builder.launch_elements((forward ? kPairs : kPairsBackward).of(result.dtype),
                            result.element_count());
    if (!forward) builder.tensor(call.outputs[0]);
    builder.tensor(result).tensor(gate).integer(result.element_count());
    return add_numbers();
  }
  builder.launch_elements((forward ? kForward : kBackward).of(result.dtype),
                          result.element_count());
  if (!forward) pair(call.outputs[0], call.outputs[1]);
  builder.tensor(result);
  pair(gate, call.inputs[forward ? 1 : 2]);
  builder.integer(result.shape[0]).integer(columns).integer(gate.shape[1]);
  add_numbers();
}

void plan_adamw(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("adamw");
  const TensorView& gradient = call.inputs[0];
  AdamWFactors factors = adamw_factors(call);
  builder.launch_elements(kKernels.of(gradient.dtype), gradient.element_count());
  for (const TensorView& output : call.outputs) builder.tensor(output);
  builder.tensor(gradient).integer(gradient.element_count());
  builder.real(factors.beta1).real(factors.one_minus_beta1).real(factors.beta2);
  builder.real(factors.one_minus_beta2).real(factors.gradient_scale).real(factors.epsilon);
  builder.real(factors.keep).real(factors.step_size).real(factors.second_correction);
}

void plan_master(const OpCall& call, GpuLaunchBuilder& builder) {
  bool joins = call.kind == OpKind::kJoinMaster;
  int64_t count = call.outputs[0].element_count();
  builder.launch_elements(joins ? "join_master" : "split_master", count);
  builder.tensor(call.outputs[0]).tensor(joins ? call.inputs[0] : call.outputs[1]);
  builder.tensor(call.inputs[joins ? 1 : 0]).integer(count);
}

void plan_dropout(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("dropout");
  const TensorView& out = call.outputs[0];
  builder.launch_elements(kKernels.of(out.dtype), out.element_count());
  builder.tensor(out).tensor(call.inputs[0]).tensor(call.inputs[1]);
  builder.integer(out.element_count());
  add_dropout_arguments(builder, call);
  builder.flag(call.accumulate);
}

void plan_conversion(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kAccumulate = STAGECOACH_STORAGE_KERNELS("accumulate");
  // By what is read, then by what is written.
  static constexpr StorageKernels kFromF32 = STAGECOACH_STORAGE_KERNELS("convert_fp32");
  static constexpr StorageKernels kFromBF16 = STAGECOACH_STORAGE_KERNELS("convert_bf16");
  static constexpr StorageKernels kFromF16 = STAGECOACH_STORAGE_KERNELS("convert_fp16");
  const TensorView& in = call.inputs[0];
  const TensorView& out = call.outputs[0];
  std::string_view kernel = kAccumulate.of(in.dtype);
  if (call.kind == OpKind::kConvert) {
    const StorageKernels& from = in.dtype == DType::kF32    ? kFromF32
                                 : in.dtype == DType::kBF16 ? kFromBF16
                                                            : kFromF16;
    kernel = from.of(out.dtype);
  }
  builder.launch_elements(kernel, in.element_count());
  builder.tensor(out).tensor(in).integer(in.element_count());
}

}  // namespace

void add_dropout_arguments(GpuLaunchBuilder& builder, const OpCall& call) {
  // As core/random.cpp names a stream.
  const RandomKey& key = call.key;
  std::array<uint32_t, 4> name =
      philox_4x32({key.iteration, key.layer, key.micro_batch, key.site},
                  {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  auto pair = [](uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; };
  builder.unsigned_word(pair(name[0], name[1])).unsigned_word(pair(name[2], name[3]));
  builder.unsigned_word(dropout_threshold(call.drop_probability));
  builder.real(1.0f / (1.0f - call.drop_probability)).flag(call.drop_probability > 0.0f);
}

void plan_elementwise(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kGelu = STAGECOACH_STORAGE_KERNELS("gelu_forward");
  static constexpr StorageKernels kGeluBackward = STAGECOACH_STORAGE_KERNELS("gelu_backward");
  static constexpr StorageKernels kAdd = STAGECOACH_STORAGE_KERNELS("add");
  static constexpr StorageKernels kMultiply = STAGECOACH_STORAGE_KERNELS("multiply");
  static constexpr StorageKernels kError = STAGECOACH_STORAGE_KERNELS("squared_error_backward");
  const TensorView& out = call.outputs[0];
  const TensorView& first = call.inputs[0];
  int64_t count = out.element_count();
  auto launch = [&](const StorageKernels& kernels) {
    builder.launch_elements(kernels.of(first.dtype), count).tensor(out).tensor(first);
  };
  switch (call.kind) {
    case OpKind::kGeluForward:
      launch(kGelu);
      builder.integer(count);
      return;
    case OpKind::kGeluBackward:
      launch(kGeluBackward);
      builder.tensor(call.inputs[1]).integer(count).flag(call.accumulate);
      return;
    case OpKind::kAdd:
      launch(kAdd);
      builder.tensor(call.inputs[1]).integer(count);
      return;
    case OpKind::kMultiply:
      launch(kMultiply);
      builder.tensor(call.inputs[1]).integer(count).flag(call.accumulate);
      return;
    case OpKind::kSquaredErrorBackward:
      launch(kError);
      builder.tensor(call.inputs[1]).integer(count);
      builder.real(call.scale * 2.0f / static_cast<float>(first.shape[1]));
      builder.flag(call.accumulate);
      return;
    case OpKind::kGatedSiluForward:
    case OpKind::kGatedSiluBackward:
      return plan_gated_silu(call, builder);
    case OpKind::kAdamW:
      return plan_adamw(call, builder);
    case OpKind::kJoinMaster:
    case OpKind::kSplitMaster:
      return plan_master(call, builder);
    case OpKind::kDropout:
      return plan_dropout(call, builder);
    default:
      return plan_conversion(call, builder);
  }
}

}  // namespace stagecoach
