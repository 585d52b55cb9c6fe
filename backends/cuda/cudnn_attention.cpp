#include "backends/cuda/cudnn_attention.h"

#include <fmt/format.h>
#include <limits>
#include <utility>

#include "backends/cuda/cudnn_attention_graph.h"

namespace stagecoach {

namespace {

using Id = CudnnAttentionId;

/// The first version whose attention gives right results without help for every shape we ask for.
constexpr size_t kOldestVersion = 91002;
/// Up to this version, backward passes over sequences that are no multiple of 128 need padding.
constexpr size_t kLastPaddingVersion = 91500;

ByteCount aligned(ByteCount size) {
  constexpr ByteCount kAlignment = 256;
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

void* pointer_to(uint64_t address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace

/// A compiled graph for some sequences and key heads of a shape, which runs until all are done.
struct CudnnAttention::Plan {
  Plan(const CudnnFunctions& functions, void* handle) : graph(functions, handle) {}

  CudnnGraph graph;
  CudnnPlan compiled;
  CudnnAttentionPart part;
  std::string reason;        ///< why not; empty: it is served
  ByteCount query_sums = 0;  ///< offsets in scratch, whose start holds the out sums
  ByteCount library_scratch = 0;
  ByteCount scratch_bytes = 0;
  float scale = 1.0f;
  float masked_score = -std::numeric_limits<float>::infinity();
  float one = 1.0f;
};

/// The pointers of one run.
class CudnnAttention::Pack {
 public:
  explicit Pack(const CudnnFunctions& functions) : f_(functions) {}
  ~Pack() {
    if (pack_ != nullptr) static_cast<void>(f_.cudnnBackendDestroyDescriptor(pack_));
  }
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;

  void add(int64_t id, void* pointer) {
    ids_[count_] = id;
    pointers_[count_++] = pointer;
  }
  int finish(void* workspace) {
    using Attribute = CudnnAttribute;
    int error = f_.cudnnBackendCreateDescriptor(CudnnDescriptorKind::kVariantPack, &pack_);
    set(error, Attribute::kPackIds, CudnnType::kInt64, count_, ids_.data());
    set(error, Attribute::kPackPointers, CudnnType::kPointer, count_, pointers_.data());
    set(error, Attribute::kPackWorkspace, CudnnType::kPointer, 1, &workspace);
    return error == CudnnStatus::kSuccess ? f_.cudnnBackendFinalize(pack_) : error;
  }
  void* handle() const { return pack_; }

 private:
  void set(int& error, int attribute, int type, size_t count, const void* values) {
    if (error != CudnnStatus::kSuccess) return;
    error =
        f_.cudnnBackendSetAttribute(pack_, attribute, type, static_cast<int64_t>(count), values);
  }

  static constexpr size_t kMost = 16;
  const CudnnFunctions& f_;
  void* pack_ = nullptr;
  std::array<int64_t, kMost> ids_{};
  std::array<void*, kMost> pointers_{};
  size_t count_ = 0;
};

Result<std::unique_ptr<CudnnAttention>> CudnnAttention::open(const CudnnFunctions& functions,
                                                             bool is_deterministic,
                                                             ByteCount most_scratch) {
  void* handle = nullptr;
  size_t version = functions.cudnnGetVersion();
  if (version < kOldestVersion) {
    return unavailable(fmt::format("cuDNN {}.{}.{} is older than 9.10.2", version / 10000,
                                   version / 100 % 100, version % 100));
  }
  int error = functions.cudnnCreate(&handle);
  if (error != CudnnStatus::kSuccess) {
    return unavailable(cudnn_failure(functions, error, "create").message());
  }
  return std::unique_ptr<CudnnAttention>(
      new CudnnAttention(functions, handle, is_deterministic, most_scratch));
}

CudnnAttention::CudnnAttention(const CudnnFunctions& functions, void* handle, bool is_deterministic,
                               ByteCount most_scratch)
    : f_(functions),
      handle_(handle),
      is_deterministic_(is_deterministic),
      most_scratch_(most_scratch),
      version_(functions.cudnnGetVersion()) {}

CudnnAttention::~CudnnAttention() {
  static_cast<void>(f_.cudnnDestroy(handle_));
}

std::string CudnnAttention::version() const {
  return fmt::format("{}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
}

std::string CudnnAttention::known_refusal(const GpuAttentionShape& shape) const {
  if (shape.dtype == DType::kF32) return "it takes 16-bit numbers only";
  if (!shape.is_aligned) return "an operand does not start at a multiple of 16 bytes";
  if (shape.head_dim % 8 != 0) return "heads are no multiple of 8 wide";
  if (!shape.is_backward) return "";
  if (shape.sequence == 1) return "sequences of one token have no backward pass there";
  if (version_ <= kLastPaddingVersion && shape.sequence % 128 != 0) {
    return "up to version 9.15.0 sequences must be a multiple of 128";
  }
  return "";
}

Result<bool> CudnnAttention::compile(const GpuAttentionShape& shape, Plan& plan) {
  const bool deterministic = is_deterministic_ && shape.is_backward;
  add_cudnn_attention(plan.graph, shape, plan.part, deterministic);
  STAGECOACH_ASSIGN_OR_RETURN(plan.compiled, plan.graph.compile(deterministic));
  ByteCount rows = plan.part.batch * shape.sequence * plan.part.kv_heads *
                   (shape.heads / shape.kv_heads) * ByteCount{sizeof(float)};
  if (shape.is_backward) {
    plan.query_sums = aligned(rows);
    plan.library_scratch = plan.query_sums;
    if (!deterministic) plan.library_scratch += aligned(rows * shape.head_dim);
  }
  plan.scratch_bytes = plan.library_scratch + aligned(plan.compiled.workspace_bytes);
  plan.scale = shape.scale;
  return plan.scratch_bytes <= most_scratch_;
}

Result<std::shared_ptr<CudnnAttention::Plan>> CudnnAttention::make_plan(
    const GpuAttentionShape& shape) {
  auto plan = std::make_shared<Plan>(f_, handle_);
  plan->reason = known_refusal(shape);
  if (!plan->reason.empty()) return plan;
  CudnnAttentionPart part{shape.batch, shape.kv_heads};
  for (;;) {
    plan = std::make_shared<Plan>(f_, handle_);
    plan->part = part;
    Result<bool> fits = compile(shape, *plan);
    if (!fits.is_ok()) {
      if (fits.status().code() != StatusCode::kUnimplemented) return fits.status();
      plan->reason = fits.status().message();
      return plan;
    }
    if (*fits) return plan;
    // Fewer sequences first, then fewer heads: always a divisor, so that one graph serves all.
    int64_t& most = part.batch > 1 ? part.batch : part.kv_heads;
    if (most == 1) break;
    int64_t fewer = most / 2;
    while (most % fewer != 0) --fewer;
    most = fewer;
  }
  plan->reason = fmt::format("it needs {} bytes of scratch for one head", plan->scratch_bytes);
  return plan;
}

Result<std::shared_ptr<CudnnAttention::Plan>> CudnnAttention::plan_of(
    const GpuAttentionShape& shape, bool& is_new) {
  std::shared_ptr<Plan>* known = plans_.find(shape);
  is_new = known == nullptr;
  if (!is_new) return *known;
  Result<std::shared_ptr<Plan>> made = make_plan(shape);
  if (!made.is_ok()) return made.status().with_context(describe(shape));
  return *plans_.insert(shape, std::move(made).value());
}

Result<CudnnAttention::Answer> CudnnAttention::find(const GpuAttentionShape& shape) {
  std::lock_guard lock(mutex_);
  Answer answer;
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, plan_of(shape, answer.is_new));
  if (plan->reason.empty()) {
    answer.scratch_bytes = plan->scratch_bytes;
  } else if (answer.is_new) {
    answer.reason = plan->reason;
  }
  return answer;
}

Status CudnnAttention::run_part(Plan& plan, const GpuAttentionShape& shape,
                                const GpuAttentionOperands& operands, int64_t first_kv_head,
                                const GpuLibraryPlace& place) {
  constexpr uint64_t kElement = 2;
  const uint64_t head = static_cast<uint64_t>(shape.head_dim) * kElement;
  const uint64_t key = static_cast<uint64_t>(shape.heads) * head;
  const uint64_t value = key + static_cast<uint64_t>(shape.kv_heads) * head;
  const uint64_t group = static_cast<uint64_t>(shape.heads / shape.kv_heads);
  Pack pack(f_);
  // Bytes to the part's first key head, whose queries start `group` times as far.
  auto at = [](uint64_t base, uint64_t offset) { return pointer_to(base + offset); };
  const uint64_t kv_offset = static_cast<uint64_t>(first_kv_head) * head;
  pack.add(Id::kQuery, at(operands.qkv, kv_offset * group));
  pack.add(Id::kKey, at(operands.qkv, key + kv_offset));
  pack.add(Id::kValue, at(operands.qkv, value + kv_offset));
  pack.add(Id::kOut, at(operands.out, kv_offset * group));
  const uint64_t first_head = static_cast<uint64_t>(first_kv_head) * group;
  pack.add(Id::kStats, at(operands.lse, first_head * sizeof(float)));
  pack.add(Id::kScale, &plan.scale);
  pack.add(Id::kMaskedScore, &plan.masked_score);
  if (shape.is_backward) {
    pack.add(Id::kOutGrad, at(operands.out_grad, kv_offset * group));
    pack.add(Id::kQueryGrad, at(operands.qkv_grad, kv_offset * group));
    pack.add(Id::kKeyGrad, at(operands.qkv_grad, key + kv_offset));
    pack.add(Id::kValueGrad, at(operands.qkv_grad, value + kv_offset));
    pack.add(Id::kOutSums, pointer_to(place.scratch));
    pack.add(Id::kOne, &plan.one);
    if (!is_deterministic_) {
      pack.add(Id::kQuerySums, at(place.scratch, static_cast<uint64_t>(plan.query_sums)));
    }
  }
  int error = pack.finish(at(place.scratch, static_cast<uint64_t>(plan.library_scratch)));
  if (error == CudnnStatus::kSuccess) {
    error = f_.cudnnBackendExecute(handle_, plan.compiled.plan, pack.handle());
  }
  if (error == CudnnStatus::kSuccess) return Status::ok();
  return internal_error(cudnn_failure(f_, error, "attention").message());
}

Status CudnnAttention::run(const GpuAttentionShape& shape, const GpuAttentionOperands& operands,
                           const GpuLibraryPlace& place) {
  std::lock_guard lock(mutex_);
  bool is_new = false;
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, plan_of(shape, is_new));
  if (!plan->reason.empty()) return internal_error("cuDNN no longer serves " + describe(shape));
  int error = f_.cudnnSetStream(handle_, place.stream);
  if (error != CudnnStatus::kSuccess) return cudnn_failure(f_, error, "set stream");
  constexpr uint64_t kElement = 2;
  for (int64_t first = 0; first < shape.batch; first += plan->part.batch) {
    const uint64_t row = static_cast<uint64_t>(first * shape.sequence);
    const uint64_t out_row = row * static_cast<uint64_t>(shape.heads * shape.head_dim) * kElement;
    const uint64_t qkv_row =
        out_row + 2 * row * static_cast<uint64_t>(shape.kv_heads * shape.head_dim) * kElement;
    GpuAttentionOperands part = operands;
    part.qkv += qkv_row;
    part.qkv_grad += qkv_row;
    part.out += out_row;
    part.out_grad += out_row;
    part.lse += row * static_cast<uint64_t>(shape.heads) * sizeof(float);
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += plan->part.kv_heads) {
      Status status = run_part(*plan, shape, part, kv_head, place);
      if (!status.is_ok()) return status.with_context(describe(shape));
    }
  }
  return Status::ok();
}

}  // namespace stagecoach
