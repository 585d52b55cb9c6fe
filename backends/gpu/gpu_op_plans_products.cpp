#include <fmt/format.h>
#include <limits>

#include "backends/gpu/gpu_op_plans.h"
#include "backends/gpu/kernels/attention_tiles.h"
#include "backends/gpu/kernels/matmul_tiles.h"

namespace stagecoach {

namespace {

constexpr int64_t kThreads = GpuLaunchBuilder::kThreads;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// Gradients of logits are kept times this, so that small ones stay normal numbers in fp16.
constexpr float kGradScale = 1024.0f;

MatmulShape shape_of(const GpuArch& arch, const MatmulPart& part) {
  return matmul_tile_shape(arch, part.dtype);
}

int64_t matmul_blocks(const GpuArch& arch, const MatmulPart& part) {
  MatmulShape shape = shape_of(arch, part);
  return tiles_of(part.m, shape.rows) * tiles_of(part.n, shape.columns);
}

Status check_blocks(const GpuArch& arch, const MatmulPart& part) {
  if (matmul_blocks(arch, part) <= std::numeric_limits<int32_t>::max()) return Status::ok();
  return unimplemented(
      fmt::format("a product of {} x {} has more tiles than a launch takes", part.m, part.n));
}

/// The arguments after the operands' addresses and strides for a product in one round.
void add_matmul_numbers(GpuLaunchBuilder& builder, const MatmulPart& part) {
  builder.integer(part.m).integer(part.n).integer(part.k).integer(kNoLimit).integer(kNoLimit);
  builder.real(part.alpha).flag(part.out_is_fp32).flag(part.accumulate);
}

/// The product that the last launch computes; the caller says where its matrices are.
GpuProduct product_of(const MatmulPart& part) {
  GpuProduct product;
  product.dtype = part.dtype;
  product.out_dtype = part.out_is_fp32 ? DType::kF32 : part.dtype;
  product.transpose_a = part.transpose_a;
  product.transpose_b = part.transpose_b;
  product.accumulate = part.accumulate;
  product.m = part.m;
  product.n = part.n;
  product.k = part.k;
  product.alpha = part.alpha;
  return product;
}

/// A tensor's rows; `step` bytes further each round.
GpuMatrix matrix_of(const TensorView& tensor, int64_t step = 0) {
  return {tensor_address(tensor), false, tensor.shape[1], step};
}

GpuMatrix workspace_matrix(ByteCount offset, int64_t stride) {
  return {static_cast<uint64_t>(offset), true, stride, 0};
}

}  // namespace

MatmulShape matmul_tile_shape(const GpuArch& arch, DType dtype) {
  return matmul_shape(arch.runs_nvidia_code() && dtype_size_bytes(dtype) == 2);
}

std::string_view matmul_kernel(const MatmulPart& part) {
  static constexpr StorageKernels kForms[2][2] = {
      {STAGECOACH_STORAGE_KERNELS("matmul_nn"), STAGECOACH_STORAGE_KERNELS("matmul_nt")},
      {STAGECOACH_STORAGE_KERNELS("matmul_tn"), STAGECOACH_STORAGE_KERNELS("matmul_tt")}};
  return kForms[part.transpose_a ? 1 : 0][part.transpose_b ? 1 : 0].of(part.dtype);
}

void launch_matmul(GpuLaunchBuilder& builder, const GpuArch& arch, const MatmulPart& part) {
  MatmulShape shape = shape_of(arch, part);
  builder.launch(matmul_kernel(part), matmul_blocks(arch, part), 1, kThreads,
                 matmul_stages(shape, arch.shared_bytes) * shape.stage_bytes);
}

Status plan_matmul(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  const TensorView& out = call.outputs[0];
  const TensorView& a = call.inputs[0];
  const TensorView& b = call.inputs[1];
  MatmulPart part;
  part.dtype = a.dtype;
  part.transpose_a = call.transpose_a;
  part.transpose_b = call.transpose_b;
  part.m = out.shape[0];
  part.n = out.shape[1];
  part.k = a.shape[call.transpose_a ? 0 : 1];
  part.out_is_fp32 = out.dtype == DType::kF32;
  part.accumulate = call.accumulate;
  STAGECOACH_RETURN_IF_ERROR(check_blocks(arch, part));
  launch_matmul(builder, arch, part);
  builder.tensor(out).integer(part.n).tensor(a).integer(a.shape[1]).tensor(b);
  builder.integer(b.shape[1]).tensor(call.inputs[2]);
  add_matmul_numbers(builder, part);
  GpuProduct product = product_of(part);
  product.out = matrix_of(out);
  product.a = matrix_of(a);
  product.b = matrix_of(b);
  product.bias = tensor_address(call.inputs[2]);
  builder.describe_product(product);
  return Status::ok();
}

namespace {

/// Linear cross-entropy in rounds of `chunk` rows, whose logits lie in workspace.
class CrossEntropyPlan {
 public:
  CrossEntropyPlan(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder)
      : call_(call),
        arch_(arch),
        builder_(builder),
        hidden_(call.inputs[0]),
        weight_(call.inputs[1]),
        rows_(hidden_.shape[0]),
        columns_(hidden_.shape[1]),
        vocabulary_(weight_.shape[0]),
        stride_(tiles_of(vocabulary_, 8) * 8),
        element_(dtype_size_bytes(hidden_.dtype)) {
    // A library's own scratch lies beside it.
    constexpr ByteCount kMost = 512 * kMiB;
    ByteCount budget = std::min(kMost, arch.scratch_bytes / 3 * 2);
    ByteCount row_bytes = stride_ * (ByteCount{sizeof(float)} + element_);
    chunk_ = std::min(rows_, whole_tiles(budget / row_bytes));
    logits_ = builder.reserve(chunk_ * stride_ * ByteCount{sizeof(float)});
    builder.set_rounds(tiles_of(rows_, chunk_));
  }

  Status plan() {
    STAGECOACH_RETURN_IF_ERROR(check_blocks(arch_, logits_part()));
    add_id_check(builder_, call_.inputs[2], -1, vocabulary_);
    add_logits();
    if (call_.kind == OpKind::kLinearCrossEntropyForward) {
      add_losses();
      return Status::ok();
    }
    grads_ = builder_.reserve(chunk_ * stride_ * element_);
    add_logit_grads();
    return call_.kind == OpKind::kLinearCrossEntropyBackwardInput ? add_hidden_grad()
                                                                  : add_weight_grad();
  }

 private:
  /// Rows of a round, of which so many fit: whole tiles, or less than one where that is too much,
  /// but not so few that products are nothing but overhead.
  static int64_t whole_tiles(int64_t rows_that_fit) {
    constexpr int64_t kTileRows = matmul_shape(true).rows;
    constexpr int64_t kFewest = 8;
    int64_t unit = rows_that_fit >= kTileRows ? kTileRows : kFewest;
    return std::max(rows_that_fit / unit * unit, kFewest);
  }
  MatmulPart logits_part() const {
    MatmulPart part;
    part.dtype = hidden_.dtype;
    part.transpose_b = true;
    part.m = chunk_;
    part.n = vocabulary_;
    part.k = columns_;
    part.out_is_fp32 = true;
    return part;
  }

  /// `rows` is what is left of them.
  GpuLaunchBuilder& rows_left() { return builder_.integer(rows_, -chunk_); }

  void add_logits() {
    MatmulPart part = logits_part();
    launch_matmul(builder_, arch_, part);
    builder_.workspace(logits_).integer(stride_).tensor(hidden_, hidden_step());
    builder_.integer(columns_).tensor(weight_).integer(columns_).integer(0);
    rows_left().integer(part.n).integer(part.k).integer(chunk_).integer(kNoLimit);
    builder_.real(1.0f).flag(true).flag(false);
    GpuProduct product = product_of(part);
    product.m_total = rows_;
    product.out = workspace_matrix(logits_, stride_);
    product.a = matrix_of(hidden_, hidden_step());
    product.b = matrix_of(weight_);
    builder_.describe_product(product);
  }
  /// Bytes of the rows of one round.
  int64_t hidden_step() const { return chunk_ * columns_ * element_; }

  void add_losses() {
    int64_t step = chunk_ * ByteCount{sizeof(float)};
    builder_.launch_walking("cross_entropy_rows", chunk_);
    builder_.tensor(call_.outputs[0], step).tensor(call_.outputs[1], step).workspace(logits_);
    builder_.tensor(call_.inputs[2], step);
    rows_left().integer(chunk_).integer(vocabulary_).integer(stride_);
    builder_.real(call_.loss_terms.z_loss).real(call_.loss_terms.label_smoothing);
  }

  void add_logit_grads() {
    static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("logit_grads");
    int64_t step = chunk_ * ByteCount{sizeof(float)};
    builder_.launch_walking(kKernels.of(hidden_.dtype), chunk_);
    builder_.workspace(grads_).workspace(logits_).tensor(call_.inputs[2], step);
    builder_.tensor(call_.inputs[3], step);
    rows_left().integer(chunk_).integer(vocabulary_).integer(stride_).real(kGradScale);
    const LossTerms& terms = call_.loss_terms;
    builder_.real(terms.z_loss).real(terms.label_share(vocabulary_));
    builder_.real(terms.other_share(vocabulary_));
  }

  /// hidden_grad[chunk, C] = grads[chunk, V] * weight[V, C].
  Status add_hidden_grad() {
    MatmulPart part;
    part.dtype = hidden_.dtype;
    part.m = chunk_;
    part.n = columns_;
    part.k = vocabulary_;
    part.alpha = call_.scale / kGradScale;
    part.out_is_fp32 = hidden_.dtype == DType::kF32;
    part.accumulate = call_.accumulate;
    launch_matmul(builder_, arch_, part);
    builder_.tensor(call_.outputs[0], hidden_step()).integer(columns_);
    builder_.workspace(grads_).integer(stride_).tensor(weight_).integer(columns_).integer(0);
    rows_left().integer(columns_).integer(vocabulary_).integer(chunk_).integer(kNoLimit);
    builder_.real(part.alpha).flag(part.out_is_fp32).flag(part.accumulate);
    GpuProduct product = product_of(part);
    product.m_total = rows_;
    product.out = matrix_of(call_.outputs[0], hidden_step());
    product.a = workspace_matrix(grads_, stride_);
    product.b = matrix_of(weight_);
    builder_.describe_product(product);
    return Status::ok();
  }

  /// weight_grad[V, C] += grads[chunk, V]^T * hidden[chunk, C], chunks in order.
  Status add_weight_grad() {
    MatmulPart part;
    part.dtype = hidden_.dtype;
    part.transpose_a = true;
    part.m = vocabulary_;
    part.n = columns_;
    part.k = chunk_;
    part.alpha = call_.scale / kGradScale;
    part.out_is_fp32 = true;
    part.accumulate = true;
    STAGECOACH_RETURN_IF_ERROR(check_blocks(arch_, part));
    launch_matmul(builder_, arch_, part);
    builder_.tensor(call_.outputs[0]).integer(columns_).workspace(grads_).integer(stride_);
    builder_.tensor(hidden_, hidden_step()).integer(columns_).integer(0);
    builder_.integer(vocabulary_).integer(columns_);
    rows_left().integer(kNoLimit).integer(chunk_);
    builder_.real(part.alpha).flag(true).flag(true);
    GpuProduct product = product_of(part);
    product.k_total = rows_;
    product.out = matrix_of(call_.outputs[0]);
    product.a = workspace_matrix(grads_, stride_);
    product.b = matrix_of(hidden_, hidden_step());
    builder_.describe_product(product);
    return Status::ok();
  }

  const OpCall& call_;
  const GpuArch& arch_;
  GpuLaunchBuilder& builder_;
  const TensorView& hidden_;
  const TensorView& weight_;
  int64_t rows_, columns_, vocabulary_;
  int64_t stride_;  ///< elements between rows of logits: a multiple of 16 bytes
  ByteCount element_;
  int64_t chunk_ = 0;
  ByteCount logits_ = 0;
  ByteCount grads_ = 0;
};

}  // namespace

Status plan_cross_entropy(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  return CrossEntropyPlan(call, arch, builder).plan();
}

namespace {

/// The kernels of one padded head dimension.
struct AttentionKernels {
  int padded_dim;
  StorageKernels forward, keys, queries;
};

#define STAGECOACH_ATTENTION_KERNELS(dim, kind)                                 \
  {                                                                             \
    dim, STAGECOACH_STORAGE_KERNELS("attention_forward_" kind "d" #dim),        \
        STAGECOACH_STORAGE_KERNELS("attention_backward_keys_" kind "d" #dim),   \
        STAGECOACH_STORAGE_KERNELS("attention_backward_queries_" kind "d" #dim) \
  }

constexpr AttentionKernels kAttentionKernels[] = {STAGECOACH_ATTENTION_KERNELS(64, ""),
                                                  STAGECOACH_ATTENTION_KERNELS(128, ""),
                                                  STAGECOACH_ATTENTION_KERNELS(256, "")};
/// For matrix units, whose other kernels up to 128 columns know no dropout, windows and documents.
constexpr AttentionKernels kGeneralKernels[] = {STAGECOACH_ATTENTION_KERNELS(64, "general_"),
                                                STAGECOACH_ATTENTION_KERNELS(128, "general_"),
                                                STAGECOACH_ATTENTION_KERNELS(256, "")};

bool on_matrix_units(const OpCall& call, const GpuArch& arch) {
  return dtype_size_bytes(call.outputs[0].dtype) == 2 && arch.runs_nvidia_code();
}

/// A window that hides no key is none.
int64_t window_of(const OpCall& call) {
  return call.window < call.sequence ? call.window : 0;
}
const TensorView& sinks_of(const OpCall& call) {
  return call.inputs[call.kind == OpKind::kAttentionBackward ? 4 : 1];
}
const TensorView& document_starts_of(const OpCall& call) {
  return call.inputs[call.kind == OpKind::kAttentionBackward ? 5 : 2];
}
bool is_general(const OpCall& call) {
  return call.drop_probability > 0.0f || window_of(call) > 0 || !document_starts_of(call).is_none();
}

/// Null where no kernel takes such wide heads.
const AttentionKernels* choose_kernels(const OpCall& call, const GpuArch& arch) {
  bool general = is_general(call) && on_matrix_units(call, arch);
  for (const AttentionKernels& candidate : general ? kGeneralKernels : kAttentionKernels) {
    if (call.head_dim <= candidate.padded_dim) return &candidate;
  }
  return nullptr;
}

/// An attention kernel's launch as far as tiles decide it.
struct AttentionLaunch {
  AttentionShape shape;
  int stages;
  int shared_bytes;
};

/// Two stages where a block's shared memory holds them: copies then run beside the work.
Result<AttentionLaunch> choose_tiles(const OpCall& call, const GpuArch& arch, int padded_dim,
                                     AttentionPass pass) {
  int element = static_cast<int>(dtype_size_bytes(call.outputs[0].dtype));
  AttentionLaunch launch{attention_shape(element, padded_dim, pass, on_matrix_units(call, arch)), 2,
                         0};
  auto bytes = [&] {
    return attention_shared_bytes(launch.shape, element, padded_dim, pass, launch.stages);
  };
  if (bytes() > arch.shared_bytes) launch.stages = 1;
  launch.shared_bytes = bytes();
  if (launch.shared_bytes <= arch.shared_bytes) return launch;
  return unimplemented(fmt::format(
      "{} with heads of {} in {} needs {} bytes of shared memory a block, this card has {}",
      op_kind_name(call.kind), call.head_dim, dtype_name(call.outputs[0].dtype),
      launch.shared_bytes, arch.shared_bytes));
}

/// Begins a kernel that gives a block to each tile of its own rows, `each` times.
void launch_attention(const OpCall& call, GpuLaunchBuilder& builder, std::string_view kernel,
                      const AttentionLaunch& launch, int64_t each) {
  int64_t rows = call.outputs[0].shape[0];
  int64_t blocks = rows / call.sequence * tiles_of(call.sequence, launch.shape.own_rows) * each;
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max());
  builder.launch(kernel, blocks, 1, launch.shape.threads(), launch.shared_bytes);
}

void add_attention_numbers(const OpCall& call, GpuLaunchBuilder& builder, int stages) {
  int64_t rows = call.outputs[0].shape[0];
  builder.integer(rows / call.sequence).integer(call.sequence).integer(call.heads);
  builder.integer(call.kv_heads).integer(call.head_dim).real(call.scale).integer(window_of(call));
  add_dropout_arguments(builder, call);
  builder.integer(stages);
}

Status plan_attention_backward(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder,
                               const AttentionKernels& kernels) {
  static constexpr StorageKernels kNumbers = STAGECOACH_STORAGE_KERNELS("attention_row_numbers");
  STAGECOACH_ASSIGN_OR_RETURN(AttentionLaunch keys,
                              choose_tiles(call, arch, kernels.padded_dim, AttentionPass::kKeys));
  STAGECOACH_ASSIGN_OR_RETURN(AttentionLaunch queries, choose_tiles(call, arch, kernels.padded_dim,
                                                                    AttentionPass::kQueries));
  DType dtype = call.outputs[0].dtype;
  int64_t rows = call.outputs[0].shape[0];
  ByteCount numbers = builder.reserve(rows * call.heads * ByteCount{2 * sizeof(float)});
  builder.launch_walking(kNumbers.of(dtype), tiles_of(rows * call.heads, kThreads / 16));
  builder.workspace(numbers).tensor(call.inputs[2]).tensor(call.inputs[0]).tensor(call.inputs[3]);
  builder.integer(rows).integer(call.heads).integer(call.head_dim).real(call.scale);
  auto add_pass = [&](std::string_view kernel, const AttentionLaunch& launch, int64_t each) {
    launch_attention(call, builder, kernel, launch, each);
    builder.tensor(call.outputs[0]).tensor(call.inputs[0]).tensor(call.inputs[1]);
    builder.workspace(numbers).tensor(document_starts_of(call));
    add_attention_numbers(call, builder, launch.stages);
  };
  int64_t slices = tiles_of(call.head_dim, attention_slice_columns(kernels.padded_dim));
  add_pass(kernels.keys.of(dtype), keys, call.kv_heads * slices);
  add_pass(kernels.queries.of(dtype), queries, call.heads);
  return Status::ok();
}

}  // namespace

namespace {

/// What a library may compute: none does dropout as we define it, and windows, documents and sinks
/// are left to our own kernels.
void describe_attention(const OpCall& call, GpuLaunchBuilder& builder) {
  if (is_general(call) || !sinks_of(call).is_none()) return;
  bool backward = call.kind == OpKind::kAttentionBackward;
  GpuAttention attention;
  attention.shape.is_backward = backward;
  attention.shape.dtype = call.outputs[0].dtype;
  attention.shape.batch = call.outputs[0].shape[0] / call.sequence;
  attention.shape.sequence = call.sequence;
  attention.shape.heads = call.heads;
  attention.shape.kv_heads = call.kv_heads;
  attention.shape.head_dim = call.head_dim;
  attention.shape.scale = call.scale;
  GpuAttentionOperands& operands = attention.operands;
  operands.qkv = tensor_address(call.inputs[backward ? 1 : 0]);
  operands.out = tensor_address(backward ? call.inputs[2] : call.outputs[0]);
  operands.lse = tensor_address(backward ? call.inputs[3] : call.outputs[1]);
  if (backward) operands.out_grad = tensor_address(call.inputs[0]);
  if (backward) operands.qkv_grad = tensor_address(call.outputs[0]);
  constexpr uint64_t kAlignment = 16;
  uint64_t bits =
      operands.qkv | operands.out | operands.lse | operands.out_grad | operands.qkv_grad;
  attention.shape.is_aligned = bits % kAlignment == 0;
  builder.describe_attention(attention);
}

void plan_sinks_gradient(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kTerms = STAGECOACH_STORAGE_KERNELS("attention_sink_terms");
  int64_t rows = call.inputs[1].shape[0];
  ByteCount terms = builder.reserve(rows * call.heads * ByteCount{sizeof(float)});
  builder.launch_walking(kTerms.of(call.inputs[1].dtype),
                         tiles_of(rows * call.heads, kThreads / 16));
  builder.workspace(terms);
  for (int i = 0; i < 4; ++i) builder.tensor(call.inputs[static_cast<size_t>(i)]);
  builder.integer(rows).integer(call.heads).integer(call.head_dim);
  builder.launch_walking("attention_sink_sums", call.heads);
  builder.tensor(call.outputs[0]).workspace(terms).integer(rows).integer(call.heads);
}

}  // namespace

Status plan_attention(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  if (call.kind == OpKind::kAttentionSinkBackward) {
    plan_sinks_gradient(call, builder);
    return Status::ok();
  }
  describe_attention(call, builder);
  const AttentionKernels* kernels = choose_kernels(call, arch);
  if (kernels == nullptr) {
    return unimplemented(
        fmt::format("attention heads of {}, no kernel for more than 256", call.head_dim));
  }
  add_document_check(builder, document_starts_of(call), call.sequence);
  if (call.kind == OpKind::kAttentionBackward) {
    return plan_attention_backward(call, arch, builder, *kernels);
  }
  STAGECOACH_ASSIGN_OR_RETURN(AttentionLaunch launch, choose_tiles(call, arch, kernels->padded_dim,
                                                                   AttentionPass::kForward));
  launch_attention(call, builder, kernels->forward.of(call.outputs[0].dtype), launch, call.heads);
  builder.tensor(call.outputs[0]).tensor(call.outputs[1]).tensor(call.inputs[0]);
  builder.tensor(sinks_of(call)).tensor(document_starts_of(call));
  add_attention_numbers(call, builder, launch.stages);
  return Status::ok();
}

}  // namespace stagecoach
