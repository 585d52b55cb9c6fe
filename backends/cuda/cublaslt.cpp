#include "backends/cuda/cublaslt.h"

#include <fmt/format.h>

namespace stagecoach {

namespace {

using Constants = CublasLtConstants;

int type_of(DType dtype) {
  if (dtype == DType::kBF16) return Constants::kTypeBf16;
  return dtype == DType::kF16 ? Constants::kTypeFp16 : Constants::kTypeFp32;
}

/// With these the library says that it does not compute such a product.
bool is_refusal(int error) {
  return error == Constants::kNotSupported || error == Constants::kInvalidValue;
}

uint16_t half_of(float small_integer) {
  return small_integer == 0.0f ? 0x0000 : 0x3c00;
}

}  // namespace

/// Descriptors and algorithm of one shape. The library counts columns first, so that a matrix of
/// ours is its transpose there: out^T = op(b)^T * op(a)^T, its first operand being b.
struct CublasLt::Plan {
  explicit Plan(const CublasLtFunctions& functions) : f(functions) {}
  ~Plan() {
    for (void* layout : {first, second, out}) {
      if (layout != nullptr) static_cast<void>(f.cublasLtMatrixLayoutDestroy(layout));
    }
    if (operation != nullptr) static_cast<void>(f.cublasLtMatmulDescDestroy(operation));
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  int create(const GpuProductShape& shape, bool in_fp16) {
    sums_in_fp16 = in_fp16;
    int compute = in_fp16 ? Constants::kComputeFp16 : Constants::kComputeFp32;
    int scale = in_fp16 ? Constants::kTypeFp16 : Constants::kTypeFp32;
    int error = f.cublasLtMatmulDescCreate(&operation, compute, scale);
    int32_t transpose = Constants::kOperationTranspose;
    if (shape.transpose_b) set(error, Constants::kTransposeA, transpose);
    if (shape.transpose_a) set(error, Constants::kTransposeB, transpose);
    if (shape.has_bias) {
      set(error, Constants::kEpilogue, uint32_t{Constants::kEpilogueBias});
      set(error, Constants::kBiasType, int32_t{type_of(shape.dtype)});
    }
    layout(error, first, shape.dtype, shape.transpose_b ? shape.k : shape.n,
           shape.transpose_b ? shape.n : shape.k, shape.b_stride);
    layout(error, second, shape.dtype, shape.transpose_a ? shape.m : shape.k,
           shape.transpose_a ? shape.k : shape.m, shape.a_stride);
    layout(error, out, shape.out_dtype, shape.n, shape.m, shape.out_stride);
    return error;
  }
  template <typename Value>
  void set(int& error, int attribute, Value value) {
    if (error != Constants::kSuccess) return;
    error = f.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value));
  }
  void layout(int& error, void*& descriptor, DType dtype, int64_t rows, int64_t columns,
              int64_t stride) {
    if (error != Constants::kSuccess) return;
    error = f.cublasLtMatrixLayoutCreate(&descriptor, type_of(dtype), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), stride);
  }

  const CublasLtFunctions& f;
  void* operation = nullptr;
  void* first = nullptr;
  void* second = nullptr;
  void* out = nullptr;
  bool sums_in_fp16 = false;
  bool is_served = false;
  int refusal = Constants::kSuccess;  ///< what the library said where it does not serve
  CublasLtChoice choice{};
};

/// What the heuristic is asked for.
class CublasLt::Preference {
 public:
  explicit Preference(const CublasLtFunctions& functions) : f_(functions) {}
  ~Preference() {
    if (handle_ != nullptr) static_cast<void>(f_.cublasLtMatmulPreferenceDestroy(handle_));
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  int create(const GpuProductShape& shape, ByteCount scratch_bytes) {
    int error = f_.cublasLtMatmulPreferenceCreate(&handle_);
    set(error, Constants::kMaxWorkspace, static_cast<uint64_t>(scratch_bytes));
    set(error, Constants::kReductionSchemes, Constants::kReductionInComputeType);
    const int alignments[] = {shape.b_alignment, shape.a_alignment, shape.out_alignment,
                              shape.out_alignment};
    for (int i = 0; i < 4; ++i) {
      set(error, Constants::kAlignmentA + i, static_cast<uint32_t>(alignments[i]));
    }
    return error;
  }
  void* handle() const { return handle_; }

 private:
  template <typename Value>
  void set(int& error, int attribute, Value value) {
    if (error != Constants::kSuccess) return;
    error = f_.cublasLtMatmulPreferenceSetAttribute(handle_, attribute, &value, sizeof(value));
  }

  const CublasLtFunctions& f_;
  void* handle_ = nullptr;
};

Result<std::unique_ptr<CublasLt>> CublasLt::open(const CublasLtFunctions& functions,
                                                 const Options& options) {
  void* handle = nullptr;
  int error = functions.cublasLtCreate(&handle);
  std::unique_ptr<CublasLt> library(new CublasLt(functions, handle, options));
  if (error != Constants::kSuccess) return library->failure(error, "create");
  return library;
}

CublasLt::CublasLt(const CublasLtFunctions& functions, void* handle, const Options& options)
    : f_(functions), handle_(handle), options_(options) {}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) static_cast<void>(f_.cublasLtDestroy(handle_));
}

std::string CublasLt::version() const {
  size_t version = f_.cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string CublasLt::error_text(int error) const {
  const char* name = f_.cublasLtGetStatusName(error);
  const char* text = f_.cublasLtGetStatusString(error);
  return fmt::format("{} ({}): {}", name == nullptr ? "unknown error" : name, error,
                     text == nullptr ? "the library has no text for it" : text);
}

Status CublasLt::failure(int error, std::string_view function) const {
  std::string message = fmt::format("cuBLASLt {}: {}", function, error_text(error));
  if (error == Constants::kAllocFailed) return resource_exhausted(std::move(message));
  return internal_error(std::move(message));
}

Status CublasLt::choose(Plan& plan, const GpuProductShape& shape) {
  Preference preference(f_);
  int error = preference.create(shape, options_.scratch_bytes);
  if (error != Constants::kSuccess) return failure(error, "preference");
  constexpr int kMostChoices = 8;
  std::array<CublasLtChoice, kMostChoices> choices{};
  int count = 0;
  error = f_.cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.first, plan.second,
                                            plan.out, plan.out, preference.handle(), kMostChoices,
                                            choices.data(), &count);
  plan.refusal = error;
  if (is_refusal(error)) return Status::ok();
  if (error != Constants::kSuccess) return failure(error, "heuristic");
  for (int i = 0; i < count && !plan.is_served; ++i) {
    const CublasLtChoice& choice = choices[static_cast<size_t>(i)];
    plan.is_served = choice.status == Constants::kSuccess &&
                     choice.workspace_bytes <= static_cast<size_t>(options_.scratch_bytes);
    if (plan.is_served) plan.choice = choice;
  }
  return Status::ok();
}

Result<std::shared_ptr<CublasLt::Plan>> CublasLt::make_plan(const GpuProductShape& shape) {
  bool in_fp16 = options_.fp16_accumulate && shape.dtype == DType::kF16 &&
                 shape.out_dtype == DType::kF16 && !shape.is_scaled;
  auto plan = std::make_shared<Plan>(f_);
  int error = plan->create(shape, in_fp16);
  // The library refuses some strides already here.
  plan->refusal = error;
  if (is_refusal(error)) return plan;
  if (error != Constants::kSuccess) return failure(error, "describe product");
  STAGECOACH_RETURN_IF_ERROR(choose(*plan, shape));
  return plan;
}

Result<std::shared_ptr<CublasLt::Plan>> CublasLt::plan_of(const GpuProductShape& shape,
                                                          bool& is_new) {
  std::shared_ptr<Plan>* known = plans_.find(shape);
  if (known != nullptr) return *known;
  is_new = true;
  Result<std::shared_ptr<Plan>> made = make_plan(shape);
  if (!made.is_ok()) return made.status().with_context(describe(shape));
  return *plans_.insert(shape, std::move(made).value());
}

Result<ProductAxis> CublasLt::served_cut(const GpuProductShape& shape, bool& is_new) {
  ProductAxis axis = cut_axis(shape, options_.least_cut_terms);
  for (int part = 0; part < 2 && axis != ProductAxis::kNone; ++part) {
    STAGECOACH_ASSIGN_OR_RETURN(bool served,
                                serves(product_part({shape, {}}, axis, part).shape, is_new));
    if (!served) axis = ProductAxis::kNone;
  }
  return axis;
}

Result<bool> CublasLt::serves(const GpuProductShape& shape, bool& is_new) {
  STAGECOACH_ASSIGN_OR_RETURN(ProductAxis axis, served_cut(shape, is_new));
  if (axis != ProductAxis::kNone) return true;
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, plan_of(shape, is_new));
  return plan->is_served;
}

Result<CublasLt::Answer> CublasLt::find(const GpuProductShape& shape) {
  std::lock_guard lock(mutex_);
  Answer answer;
  STAGECOACH_ASSIGN_OR_RETURN(answer.serves, serves(shape, answer.is_new));
  if (answer.serves || !answer.is_new) return answer;
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, plan_of(shape, answer.is_new));
  answer.reason = plan->refusal == Constants::kSuccess ? "the heuristic gives no algorithm"
                                                       : error_text(plan->refusal);
  return answer;
}

Status CublasLt::run(const GpuProductShape& shape, const GpuProductOperands& operands,
                     const GpuLibraryPlace& place) {
  std::lock_guard lock(mutex_);
  return run_parts({shape, operands}, place);
}

Status CublasLt::run_parts(const GpuProductRound& product, const GpuLibraryPlace& place) {
  bool is_new = false;
  STAGECOACH_ASSIGN_OR_RETURN(ProductAxis axis, served_cut(product.shape, is_new));
  if (axis == ProductAxis::kNone) return run_whole(product, place);
  STAGECOACH_RETURN_IF_ERROR(run_parts(product_part(product, axis, 0), place));
  return run_parts(product_part(product, axis, 1), place);
}

Status CublasLt::run_whole(const GpuProductRound& product, const GpuLibraryPlace& place) {
  const GpuProductShape& shape = product.shape;
  const GpuProductOperands& operands = product.operands;
  bool is_new = false;
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan, plan_of(shape, is_new));
  if (!plan->is_served) return internal_error("cuBLASLt no longer serves " + describe(shape));
  auto pointer = [](uint64_t address) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  };
  int error = Constants::kSuccess;
  if (shape.has_bias) plan->set(error, Constants::kBiasPointer, pointer(operands.bias));
  if (error != Constants::kSuccess) return failure(error, "set bias");
  const float alpha = operands.alpha, beta = shape.accumulate ? 1.0f : 0.0f;
  const uint16_t half_alpha = half_of(alpha), half_beta = half_of(beta);
  const bool in_fp16 = plan->sums_in_fp16;
  void* out = pointer(operands.out);
  error = f_.cublasLtMatmul(handle_, plan->operation,
                            in_fp16 ? static_cast<const void*>(&half_alpha) : &alpha,
                            pointer(operands.b), plan->first, pointer(operands.a), plan->second,
                            in_fp16 ? static_cast<const void*>(&half_beta) : &beta, out, plan->out,
                            out, plan->out, plan->choice.algorithm.data(), pointer(place.scratch),
                            static_cast<size_t>(place.scratch_bytes), place.stream);
  if (error == Constants::kSuccess) return Status::ok();
  return failure(error, "matmul").with_context(describe(shape));
}

}  // namespace stagecoach
