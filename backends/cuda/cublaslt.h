#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/cuda/cublaslt_functions.h"
#include "backends/cuda/cublaslt_parts.h"
#include "backends/gpu/gpu_library.h"
#include "backends/gpu/gpu_shape_cache.h"

namespace stagecoach {

/// Matrix products by cuBLASLt in one context. The algorithm is the first that the library's
/// heuristic gives for the shape with a fixed size of scratch; K is split, if at all, into parts
/// whose sums are added in a step of their own, so that one library version gives the same bits
/// every run. Large products of odd extents run in parts (cublaslt_parts.h). fp32 never uses TF32.
/// Thread rule: any thread, with the context current; calls take turns.
class CublasLt {
 public:
  static constexpr size_t kMostShapes = 4096;

  /// How products are computed. Plain data.
  struct Options {
    /// fp16 products with fp16 results are summed in fp16: twice as fast on consumer cards, and
    /// less exact.
    bool fp16_accumulate = false;
    /// Of every product, so that the choice of an algorithm depends on nothing else.
    ByteCount scratch_bytes = GpuLibraryRequest::kProductScratch;
    /// cut_axis's: from here on a second launch costs less than an odd extent (H200).
    int64_t least_cut_terms = int64_t{1} << 29;
  };

  /// Creates the library's handle.
  static Result<std::unique_ptr<CublasLt>> open(const CublasLtFunctions& functions,
                                                const Options& options);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  ByteCount scratch_bytes() const { return options_.scratch_bytes; }
  /// "13.1.0".
  std::string version() const;
  /// Whether the library computes such products; `is_new`: it had to be asked; `reason`, where it
  /// had and does not: what it said.
  struct Answer {
    bool serves = false;
    bool is_new = false;
    std::string reason;
  };
  /// Errors: those of the library other than "not supported".
  Result<Answer> find(const GpuProductShape& shape);
  /// Queues a product. Errors: internal, or resource exhausted.
  Status run(const GpuProductShape& shape, const GpuProductOperands& operands,
             const GpuLibraryPlace& place);

 private:
  struct Plan;
  class Preference;
  CublasLt(const CublasLtFunctions& functions, void* handle, const Options& options);

  // All of these under `mutex_`. `is_new` becomes true where the library had to be asked.
  Result<std::shared_ptr<Plan>> plan_of(const GpuProductShape& shape, bool& is_new);
  /// The axis to cut along so that the library serves both parts, or none.
  Result<ProductAxis> served_cut(const GpuProductShape& shape, bool& is_new);
  /// Whole or in parts.
  Result<bool> serves(const GpuProductShape& shape, bool& is_new);
  Status run_parts(const GpuProductRound& product, const GpuLibraryPlace& place);
  Status run_whole(const GpuProductRound& product, const GpuLibraryPlace& place);
  Result<std::shared_ptr<Plan>> make_plan(const GpuProductShape& shape);
  Status choose(Plan& plan, const GpuProductShape& shape);
  Status failure(int error, std::string_view function) const;
  std::string error_text(int error) const;

  const CublasLtFunctions f_;
  void* const handle_;
  const Options options_;
  std::mutex mutex_;
  GpuShapeCache<GpuProductShape, std::shared_ptr<Plan>> plans_{kMostShapes};
};

}  // namespace stagecoach
