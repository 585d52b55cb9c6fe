#include "backends/cuda/cuda_library.h"

#include <fmt/format.h>

#include "core/log.h"

namespace stagecoach {

namespace {

constexpr const char* kOwnKernels = "own kernels";

class CudaLibrary final : public GpuLibrary {
 public:
  CudaLibrary(const CudaLibraryFunctions& functions, const GpuLibraryRequest& request)
      : device_(request.device), is_deterministic_(request.is_deterministic) {
    open_products(functions.cublaslt, {.fp16_accumulate = request.fp16_accumulate,
                                       .scratch_bytes = request.product_scratch});
    open_attention(functions.cudnn, request.attention_scratch);
  }

  Result<std::optional<ByteCount>> find_product(const GpuProductShape& shape) override {
    std::optional<ByteCount> scratch;
    if (products_ == nullptr) return scratch;
    STAGECOACH_ASSIGN_OR_RETURN(CublasLt::Answer answer, products_->find(shape));
    if (answer.serves) scratch = products_->scratch_bytes();
    if (answer.is_new && !answer.serves) {
      log_info(fmt::format("{}: {} for products {}: cuBLASLt does not serve them: {}", device_,
                           kOwnKernels, describe(shape), answer.reason));
    }
    return scratch;
  }
  Status run_product(const GpuProductShape& shape, const GpuProductOperands& operands,
                     const GpuLibraryPlace& place) override {
    return products_->run(shape, operands, place);
  }

  Result<std::optional<ByteCount>> find_attention(const GpuAttentionShape& shape) override {
    if (attention_ == nullptr) return std::optional<ByteCount>();
    STAGECOACH_ASSIGN_OR_RETURN(CudnnAttention::Answer answer, attention_->find(shape));
    if (answer.is_new && !answer.scratch_bytes.has_value()) {
      log_info(fmt::format("{}: {} for attention {} of {}: cuDNN does not serve it: {}", device_,
                           kOwnKernels, shape.is_backward ? "backward" : "forward", describe(shape),
                           answer.reason));
    }
    return answer.scratch_bytes;
  }
  Status run_attention(const GpuAttentionShape& shape, const GpuAttentionOperands& operands,
                       const GpuLibraryPlace& place) override {
    return attention_->run(shape, operands, place);
  }

  std::string provider(OpKind kind) const override {
    switch (kind) {
      case OpKind::kMatmul:
        return products_text_;
      case OpKind::kLinearCrossEntropyForward:
      case OpKind::kLinearCrossEntropyBackwardInput:
      case OpKind::kLinearCrossEntropyBackwardWeight:
        if (products_ == nullptr) return products_text_;
        return fmt::format("{} for its products, {}", products_text_, kOwnKernels);
      case OpKind::kAttentionForward:
        return attention_text_;
      case OpKind::kAttentionBackward:
        if (attention_ == nullptr) return attention_text_;
        return fmt::format("{}; {}", attention_text_,
                           is_deterministic_ ? "bit-exact" : "sums in any order");
      default:
        return "";
    }
  }

 private:
  void open_products(const Result<CublasLtFunctions>& functions, const CublasLt::Options& options) {
    Status status = functions.is_ok() ? Status::ok() : functions.status();
    if (status.is_ok()) {
      auto opened = CublasLt::open(functions.value(), options);
      status = opened.status();
      if (opened.is_ok()) products_ = std::move(opened).value();
    }
    if (products_ == nullptr) {
      products_text_ = missing("cuBLASLt", "products", status);
      return;
    }
    products_text_ = fmt::format("cuBLASLt {}{}", products_->version(),
                                 options.fp16_accumulate ? " (fp16 summed in fp16)" : "");
    log_info(fmt::format("{}: products: {}", device_, products_text_));
  }
  void open_attention(const Result<CudnnFunctions>& functions, ByteCount most_scratch) {
    Status status = functions.is_ok() ? Status::ok() : functions.status();
    if (status.is_ok()) {
      auto opened = CudnnAttention::open(functions.value(), is_deterministic_, most_scratch);
      status = opened.status();
      if (opened.is_ok()) attention_ = std::move(opened).value();
    }
    if (attention_ == nullptr) {
      attention_text_ = missing("cuDNN", "attention", status);
      return;
    }
    attention_text_ = fmt::format(
        "cuDNN {} for 16-bit numbers without dropout, windows, documents and sinks, else {}",
        attention_->version(), kOwnKernels);
    log_info(fmt::format("{}: attention: {}; backward {}", device_, attention_text_,
                         is_deterministic_ ? "bit-exact"
                                           : "sums in any order, for bits that repeat set "
                                             "train.deterministic = true"));
  }
  /// Says that a library is not there; what then stands for its ops.
  std::string missing(std::string_view library, std::string_view what, const Status& status) const {
    log_warning(
        fmt::format("{}: {}: {}, since there is no usable {}: {}; install it, put its "
                    "folder into LD_LIBRARY_PATH, or set [libraries=off]",
                    device_, what, kOwnKernels, library, status.message()));
    return fmt::format("{} (no usable {}: {})", kOwnKernels, library, status.message());
  }

  const std::string device_;
  const bool is_deterministic_;
  std::unique_ptr<CublasLt> products_;
  std::unique_ptr<CudnnAttention> attention_;
  std::string products_text_, attention_text_;
};

}  // namespace

CudaLibraryFunctions load_cuda_libraries() {
  const std::vector<std::string> products = cublaslt_library_names();
  const std::vector<std::string> attention = cudnn_library_names();
  return {load_cublaslt_functions(products), load_cudnn_functions(attention)};
}

std::unique_ptr<GpuLibrary> open_cuda_library(const CudaLibraryFunctions& functions,
                                              const GpuLibraryRequest& request) {
  return std::make_unique<CudaLibrary>(functions, request);
}

}  // namespace stagecoach
