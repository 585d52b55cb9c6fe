#include "backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

using Kind = CudnnDescriptorKind;
using Attribute = CudnnAttribute;
using Type = CudnnType;
using Value = CudnnValue;

Status cudnn_failure(const CudnnFunctions& functions, int status, std::string_view function) {
  std::array<char, 512> last{};
  functions.cudnnGetLastErrorString(last.data(), last.size());
  const char* name = functions.cudnnGetErrorString(status);
  std::string message =
      fmt::format("cuDNN {}: {} ({}){}{}", function, name == nullptr ? "unknown error" : name,
                  status, last[0] == '\0' ? "" : ": ", last.data());
  if (CudnnStatus::is_not_supported(status)) return unimplemented(std::move(message));
  return internal_error(std::move(message));
}

CudnnGraph::~CudnnGraph() {
  // The last made first. (clang 14 does not take libstdc++ 12's views.)
  for (auto descriptor = descriptors_.rbegin(); descriptor != descriptors_.rend(); ++descriptor) {
    static_cast<void>(f_.cudnnBackendDestroyDescriptor(*descriptor));
  }
}

void CudnnGraph::check(int status, std::string_view what) {
  if (status != CudnnStatus::kSuccess && status_.is_ok()) {
    status_ = cudnn_failure(f_, status, what);
  }
}

void* CudnnGraph::create(int kind, std::string_view what) {
  void* descriptor = nullptr;
  if (!status_.is_ok()) return nullptr;
  check(f_.cudnnBackendCreateDescriptor(kind, &descriptor), what);
  if (status_.is_ok()) descriptors_.push_back(descriptor);
  return descriptor;
}

void CudnnGraph::set(void* descriptor, int attribute, int type, int64_t count, const void* values,
                     std::string_view what) {
  if (!status_.is_ok()) return;
  check(f_.cudnnBackendSetAttribute(descriptor, attribute, type, count, values), what);
}

void CudnnGraph::finalize(void* descriptor, std::string_view what) {
  if (status_.is_ok()) check(f_.cudnnBackendFinalize(descriptor), what);
}

CudnnGraph::Tensor CudnnGraph::tensor(const CudnnTensor& tensor) {
  constexpr std::string_view kWhat = "tensor";
  void* made = create(Kind::kTensor, kWhat);
  const bool is_virtual = tensor.id == 0;
  // Every tensor has an id; those inside the graph count from a number no other uses.
  constexpr int64_t kFirstVirtualId = 1000;
  int64_t id = is_virtual ? kFirstVirtualId + static_cast<int64_t>(descriptors_.size()) : tensor.id;
  set(made, Attribute::kTensorDataType, Type::kDataType, 1, &tensor.type, kWhat);
  set(made, Attribute::kTensorDimensions, Type::kInt64, CudnnTensor::kRank, tensor.dims.data(),
      kWhat);
  set(made, Attribute::kTensorStrides, Type::kInt64, CudnnTensor::kRank, tensor.strides.data(),
      kWhat);
  set(made, Attribute::kTensorId, Type::kInt64, 1, &id, kWhat);
  set(made, Attribute::kTensorAlignment, Type::kInt64, 1, &tensor.alignment, kWhat);
  if (is_virtual) set(made, Attribute::kTensorIsVirtual, Type::kBoolean, 1, &is_virtual, kWhat);
  if (tensor.is_by_value) {
    set(made, Attribute::kTensorIsByValue, Type::kBoolean, 1, &tensor.is_by_value, kWhat);
  }
  finalize(made, kWhat);
  return made;
}

void CudnnGraph::pointwise(int mode, Tensor x, Tensor b, Tensor t, Tensor y, int math,
                           int64_t axis) {
  constexpr std::string_view kWhat = "pointwise";
  void* description = create(Kind::kPointwise, kWhat);
  set(description, Attribute::kPointwiseMode, Type::kPointwiseMode, 1, &mode, kWhat);
  set(description, Attribute::kPointwiseMath, Type::kDataType, 1, &math, kWhat);
  if (axis >= 0) set(description, Attribute::kPointwiseAxis, Type::kInt64, 1, &axis, kWhat);
  finalize(description, kWhat);
  void* operation = create(Kind::kPointwiseOperation, kWhat);
  set(operation, Attribute::kPointwiseDescriptor, Type::kDescriptor, 1, &description, kWhat);
  set(operation, Attribute::kPointwiseX, Type::kDescriptor, 1, &x, kWhat);
  if (b != nullptr) set(operation, Attribute::kPointwiseB, Type::kDescriptor, 1, &b, kWhat);
  if (t != nullptr) set(operation, Attribute::kPointwiseT, Type::kDescriptor, 1, &t, kWhat);
  set(operation, Attribute::kPointwiseY, Type::kDescriptor, 1, &y, kWhat);
  finalize(operation, kWhat);
  operations_.push_back(operation);
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  constexpr std::string_view kWhat = "matmul";
  void* description = create(Kind::kMatmul, kWhat);
  set(description, Attribute::kMatmulMath, Type::kDataType, 1, &Value::kFloat, kWhat);
  finalize(description, kWhat);
  void* operation = create(Kind::kMatmulOperation, kWhat);
  set(operation, Attribute::kMatmulDescriptor, Type::kDescriptor, 1, &description, kWhat);
  set(operation, Attribute::kMatmulA, Type::kDescriptor, 1, &a, kWhat);
  set(operation, Attribute::kMatmulB, Type::kDescriptor, 1, &b, kWhat);
  set(operation, Attribute::kMatmulC, Type::kDescriptor, 1, &c, kWhat);
  finalize(operation, kWhat);
  operations_.push_back(operation);
}

void CudnnGraph::reduce(int op, Tensor x, Tensor y) {
  constexpr std::string_view kWhat = "reduction";
  void* description = create(Kind::kReduction, kWhat);
  set(description, Attribute::kReductionOperator, Type::kReductionOperator, 1, &op, kWhat);
  set(description, Attribute::kReductionMath, Type::kDataType, 1, &Value::kFloat, kWhat);
  finalize(description, kWhat);
  void* operation = create(Kind::kReductionOperation, kWhat);
  set(operation, Attribute::kReductionDescriptor, Type::kDescriptor, 1, &description, kWhat);
  set(operation, Attribute::kReductionX, Type::kDescriptor, 1, &x, kWhat);
  set(operation, Attribute::kReductionY, Type::kDescriptor, 1, &y, kWhat);
  finalize(operation, kWhat);
  operations_.push_back(operation);
}

void CudnnGraph::reshape(Tensor x, Tensor y) {
  constexpr std::string_view kWhat = "reshape";
  void* operation = create(Kind::kReshapeOperation, kWhat);
  set(operation, Attribute::kReshapeX, Type::kDescriptor, 1, &x, kWhat);
  set(operation, Attribute::kReshapeY, Type::kDescriptor, 1, &y, kWhat);
  finalize(operation, kWhat);
  operations_.push_back(operation);
}

void* CudnnGraph::finish_graph() {
  constexpr std::string_view kWhat = "operation graph";
  void* graph = create(Kind::kOperationGraph, kWhat);
  set(graph, Attribute::kGraphOperations, Type::kDescriptor,
      static_cast<int64_t>(operations_.size()), operations_.data(), kWhat);
  set(graph, Attribute::kGraphHandle, Type::kHandle, 1, &handle_, kWhat);
  finalize(graph, kWhat);
  return graph;
}

std::vector<void*> CudnnGraph::engine_configs(void* graph, int mode) {
  constexpr std::string_view kWhat = "engine heuristic";
  void* heuristic = create(Kind::kEngineHeuristic, kWhat);
  set(heuristic, Attribute::kHeuristicGraph, Type::kDescriptor, 1, &graph, kWhat);
  set(heuristic, Attribute::kHeuristicMode, Type::kHeuristicMode, 1, &mode, kWhat);
  if (!status_.is_ok()) return {};
  // No engine of this mode is no failure: there may be one of the other.
  if (f_.cudnnBackendFinalize(heuristic) != CudnnStatus::kSuccess) return {};
  int64_t count = 0;
  if (f_.cudnnBackendGetAttribute(heuristic, Attribute::kHeuristicResults, Type::kDescriptor, 0,
                                  &count, nullptr) != CudnnStatus::kSuccess) {
    return {};
  }
  std::vector<void*> configs;
  for (int64_t i = 0; i < count; ++i) configs.push_back(create(Kind::kEngineConfig, kWhat));
  if (!status_.is_ok() || configs.empty()) return {};
  int64_t given = 0;
  check(f_.cudnnBackendGetAttribute(heuristic, Attribute::kHeuristicResults, Type::kDescriptor,
                                    count, &given, configs.data()),
        kWhat);
  if (!status_.is_ok()) return {};
  configs.resize(static_cast<size_t>(std::min(given, count)));
  return configs;
}

bool CudnnGraph::is_deterministic(void* config) {
  constexpr int64_t kMostNotes = 32;
  void* description = create(Kind::kEngine, "engine");
  if (!status_.is_ok()) return false;
  int64_t count = 0;
  if (f_.cudnnBackendGetAttribute(config, Attribute::kConfigEngine, Type::kDescriptor, 1, &count,
                                  &description) != CudnnStatus::kSuccess) {
    return false;
  }
  std::array<int, kMostNotes> notes{};
  count = 0;
  if (f_.cudnnBackendGetAttribute(description, Attribute::kEngineNumericalNote,
                                  Type::kNumericalNote, kMostNotes, &count,
                                  notes.data()) != CudnnStatus::kSuccess) {
    return false;
  }
  auto end = notes.begin() + std::min(count, kMostNotes);
  return std::find(notes.begin(), end, Value::kNoteNonDeterministic) == end;
}

bool CudnnGraph::try_config(void* config, bool deterministic, CudnnPlan& plan) {
  if (deterministic && !is_deterministic(config)) return false;
  plan.plan = create(Kind::kExecutionPlan, "execution plan");
  set(plan.plan, Attribute::kPlanHandle, Type::kHandle, 1, &handle_, "execution plan");
  set(plan.plan, Attribute::kPlanConfig, Type::kDescriptor, 1, &config, "execution plan");
  if (!status_.is_ok()) return false;
  if (f_.cudnnBackendFinalize(plan.plan) != CudnnStatus::kSuccess) return false;
  int64_t size = 0, count = 0;
  check(f_.cudnnBackendGetAttribute(plan.plan, Attribute::kPlanWorkspaceSize, Type::kInt64, 1,
                                    &count, &size),
        "workspace size");
  plan.workspace_bytes = size;
  return status_.is_ok();
}

Result<CudnnPlan> CudnnGraph::compile(bool deterministic) {
  void* graph = finish_graph();
  int tried = 0;
  for (int mode : {Value::kHeuristicA, Value::kHeuristicFallback}) {
    for (void* config : engine_configs(graph, mode)) {
      CudnnPlan plan;
      ++tried;
      if (try_config(config, deterministic, plan)) return plan;
    }
  }
  if (!status_.is_ok()) return status_;
  return unimplemented(fmt::format("cuDNN has no {}engine for it ({} tried)",
                                   deterministic ? "bit-exact " : "", tried));
}

}  // namespace stagecoach
