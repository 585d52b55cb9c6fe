#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/cuda/cudnn_functions.h"
#include "core/bytes.h"

namespace stagecoach {

/// A four-dimensional tensor of a cuDNN graph. Plain data.
struct CudnnTensor {
  static constexpr int kRank = 4;
  int type = CudnnValue::kFloat;
  std::array<int64_t, kRank> dims = {1, 1, 1, 1};
  std::array<int64_t, kRank> strides = {1, 1, 1, 1};
  int64_t id = 0;  ///< of those that have memory; 0: exists inside the graph only
  bool is_by_value = false;
  int64_t alignment = 16;  ///< of its address, in bytes
};

/// A graph's compiled form. Plain data; the descriptors belong to the graph.
struct CudnnPlan {
  void* plan = nullptr;
  ByteCount workspace_bytes = 0;
};

/// Builds one cuDNN operation graph and owns every descriptor of it. The first failure is kept, and
/// what follows does nothing. Thread rule: one thread at a time.
class CudnnGraph {
 public:
  /// Descriptors are the library's; `handle` outlives the graph.
  CudnnGraph(const CudnnFunctions& functions, void* handle) : f_(functions), handle_(handle) {}
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  using Tensor = void*;
  Tensor tensor(const CudnnTensor& tensor);
  /// y = mode(x, b, t); absent operands are null. `axis`: of a generated index.
  void pointwise(int mode, Tensor x, Tensor b, Tensor t, Tensor y, int math = CudnnValue::kFloat,
                 int64_t axis = -1);
  /// c = a * b.
  void matmul(Tensor a, Tensor b, Tensor c);
  /// y = x reduced along the dimensions in which y has 1, or fewer.
  void reduce(int op, Tensor x, Tensor y);
  /// y is x seen with other strides.
  void reshape(Tensor x, Tensor y);

  /// Chooses the first engine that compiles; `deterministic`: of those that do not say that their
  /// bits may differ from run to run. Unimplemented when there is none.
  Result<CudnnPlan> compile(bool deterministic);

 private:
  void* create(int kind, std::string_view what);
  void set(void* descriptor, int attribute, int type, int64_t count, const void* values,
           std::string_view what);
  void finalize(void* descriptor, std::string_view what);
  void check(int status, std::string_view what);
  void* finish_graph();
  std::vector<void*> engine_configs(void* graph, int mode);
  bool is_deterministic(void* config);
  /// False: this engine does not compile, which is no failure.
  bool try_config(void* config, bool deterministic, CudnnPlan& plan);

  const CudnnFunctions& f_;
  void* const handle_;
  Status status_;
  std::vector<void*> descriptors_;
  std::vector<void*> operations_;
};

/// The failure behind `status` of `function`, with the library's own words.
Status cudnn_failure(const CudnnFunctions& functions, int status, std::string_view function);

}  // namespace stagecoach
