#include "backends/hip/hip_library.h"

#include <array>
#include <fmt/format.h>
#include <limits>
#include <mutex>

#include "backends/gpu/gpu_shape_cache.h"
#include "core/log.h"

namespace stagecoach {

namespace {

using Constants = RocblasConstants;
constexpr const char* kOwnKernels = "own kernels";

int type_of(DType dtype) {
  if (dtype == DType::kBF16) return Constants::kTypeBf16;
  return dtype == DType::kF16 ? Constants::kTypeFp16 : Constants::kTypeFp32;
}

/// rocBLAS in one device's context.
class Rocblas {
 public:
  static Result<std::unique_ptr<Rocblas>> open(const RocblasFunctions& functions,
                                               bool fp16_accumulate) {
    void* handle = nullptr;
    int error = functions.rocblas_create_handle(&handle);
    std::unique_ptr<Rocblas> library(new Rocblas(functions, handle, fp16_accumulate));
    if (error != Constants::kSuccess) return library->failure(error, "create");
    error = functions.rocblas_set_atomics_mode(handle, Constants::kAtomicsNotAllowed);
    if (error != Constants::kSuccess) return library->failure(error, "set atomics mode");
    return library;
  }
  ~Rocblas() {
    if (handle_ != nullptr) static_cast<void>(f_.rocblas_destroy_handle(handle_));
  }
  Rocblas(const Rocblas&) = delete;
  Rocblas& operator=(const Rocblas&) = delete;

  std::string version() const {
    std::array<char, 64> text{};
    int error = f_.rocblas_get_version_string(text.data(), text.size());
    return error == Constants::kSuccess ? text.data() : "of unknown version";
  }

  /// Why it does not compute such products; empty: it does.
  static std::string_view refusal(const GpuProductShape& shape) {
    if (shape.has_bias) return "it adds no bias";
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    for (int64_t extent :
         {shape.m, shape.n, shape.k, shape.a_stride, shape.b_stride, shape.out_stride}) {
      if (extent > kMost) return "an extent is more than it counts";
    }
    return "";
  }

  /// Columns first, a matrix of ours is its transpose: out^T = op(b)^T * op(a)^T.
  Status run(const GpuProductShape& shape, const GpuProductOperands& operands,
             const GpuLibraryPlace& place) {
    std::lock_guard lock(mutex_);
    auto pointer = [](uint64_t address) {
      return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
    };
    int error = f_.rocblas_set_stream(handle_, place.stream);
    if (error != Constants::kSuccess) return failure(error, "set stream");
    error = f_.rocblas_set_workspace(handle_, pointer(place.scratch),
                                     static_cast<size_t>(place.scratch_bytes));
    if (error != Constants::kSuccess) return failure(error, "set workspace");
    const bool in_fp16 = fp16_accumulate_ && shape.dtype == DType::kF16 &&
                         shape.out_dtype == DType::kF16 && !shape.is_scaled;
    const float alpha = operands.alpha, beta = shape.accumulate ? 1.0f : 0.0f;
    const uint16_t half_alpha = to_float16(alpha).bits, half_beta = to_float16(beta).bits;
    const int type = type_of(shape.dtype), out_type = type_of(shape.out_dtype);
    auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    void* out = pointer(operands.out);
    error = f_.rocblas_gemm_ex(
        handle_, operation(shape.transpose_b), operation(shape.transpose_a), narrow(shape.n),
        narrow(shape.m), narrow(shape.k), in_fp16 ? static_cast<const void*>(&half_alpha) : &alpha,
        pointer(operands.b), type, narrow(shape.b_stride), pointer(operands.a), type,
        narrow(shape.a_stride), in_fp16 ? static_cast<const void*>(&half_beta) : &beta, out,
        out_type, narrow(shape.out_stride), out, out_type, narrow(shape.out_stride),
        in_fp16 ? Constants::kTypeFp16 : Constants::kTypeFp32, Constants::kStandardAlgorithm, 0, 0);
    if (error == Constants::kSuccess || error == Constants::kPerformanceDegraded) {
      return Status::ok();
    }
    return failure(error, "gemm_ex").with_context(describe(shape));
  }

 private:
  Rocblas(const RocblasFunctions& functions, void* handle, bool fp16_accumulate)
      : f_(functions), handle_(handle), fp16_accumulate_(fp16_accumulate) {}
  static int operation(bool transpose) {
    return transpose ? Constants::kOperationTranspose : Constants::kOperationNone;
  }
  Status failure(int error, std::string_view function) const {
    const char* text = f_.rocblas_status_to_string(error);
    std::string message = fmt::format("rocBLAS {}: {} ({})", function,
                                      text == nullptr ? "unknown error" : text, error);
    if (error == Constants::kMemoryError) return resource_exhausted(std::move(message));
    return internal_error(std::move(message));
  }

  const RocblasFunctions f_;
  void* const handle_;
  const bool fp16_accumulate_;
  std::mutex mutex_;
};

class HipLibrary final : public GpuLibrary {
 public:
  HipLibrary(const Result<RocblasFunctions>& functions, const GpuLibraryRequest& request)
      : device_(request.device), scratch_bytes_(request.product_scratch) {
    Status status = functions.is_ok() ? Status::ok() : functions.status();
    if (status.is_ok()) {
      auto opened = Rocblas::open(functions.value(), request.fp16_accumulate);
      status = opened.status();
      if (opened.is_ok()) products_ = std::move(opened).value();
    }
    if (products_ == nullptr) {
      log_warning(
          fmt::format("{}: products: {}, since there is no usable rocBLAS: {}; install it, "
                      "put its folder into LD_LIBRARY_PATH, or set [libraries=off]",
                      device_, kOwnKernels, status.message()));
      text_ = fmt::format("{} (no usable rocBLAS: {})", kOwnKernels, status.message());
      return;
    }
    text_ = fmt::format("rocBLAS {}{}", products_->version(),
                        request.fp16_accumulate ? " (fp16 summed in fp16)" : "");
    log_info(fmt::format("{}: products: {}; attention: {}", device_, text_, kOwnKernels));
  }

  Result<std::optional<ByteCount>> find_product(const GpuProductShape& shape) override {
    if (products_ == nullptr) return std::optional<ByteCount>();
    std::string_view reason = Rocblas::refusal(shape);
    if (reason.empty()) return std::optional(scratch_bytes_);
    std::lock_guard lock(mutex_);
    if (refused_.find(shape) == nullptr) {
      refused_.insert(shape, true);
      log_info(fmt::format("{}: {} for products {}: rocBLAS does not serve them: {}", device_,
                           kOwnKernels, describe(shape), reason));
    }
    return std::optional<ByteCount>();
  }
  Status run_product(const GpuProductShape& shape, const GpuProductOperands& operands,
                     const GpuLibraryPlace& place) override {
    return products_->run(shape, operands, place);
  }
  Result<std::optional<ByteCount>> find_attention(const GpuAttentionShape&) override {
    return std::optional<ByteCount>();
  }
  Status run_attention(const GpuAttentionShape&, const GpuAttentionOperands&,
                       const GpuLibraryPlace&) override {
    return internal_error("rocBLAS computes no attention");
  }
  std::string provider(OpKind kind) const override {
    switch (kind) {
      case OpKind::kMatmul:
        return text_;
      case OpKind::kLinearCrossEntropyForward:
      case OpKind::kLinearCrossEntropyBackwardInput:
      case OpKind::kLinearCrossEntropyBackwardWeight:
        return products_ == nullptr ? text_
                                    : fmt::format("{} for its products, {}", text_, kOwnKernels);
      default:
        return "";
    }
  }

 private:
  static constexpr size_t kMostShapes = 4096;

  const std::string device_;
  const ByteCount scratch_bytes_;
  std::unique_ptr<Rocblas> products_;
  std::string text_;
  std::mutex mutex_;
  GpuShapeCache<GpuProductShape, bool> refused_{kMostShapes};
};

}  // namespace

std::unique_ptr<GpuLibrary> open_hip_library(const Result<RocblasFunctions>& functions,
                                             const GpuLibraryRequest& request) {
  return std::make_unique<HipLibrary>(functions, request);
}

}  // namespace stagecoach
