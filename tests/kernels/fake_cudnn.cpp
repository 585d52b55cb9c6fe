#include "tests/kernels/fake_cudnn.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "core/check.h"
#include "tests/kernels/fake_library_memory.h"

namespace stagecoach {

namespace {

using Kind = CudnnDescriptorKind;
using Attribute = CudnnAttribute;
using Value = CudnnValue;
using Extents = std::array<int64_t, 4>;
constexpr int kNotFinalized = 2004;

/// A descriptor: its attributes as they were set.
struct Descriptor {
  int kind = 0;
  bool is_final = false;
  std::map<int, std::vector<std::byte>> attributes;

  bool has(int attribute) const { return attributes.contains(attribute); }
  template <typename T>
  std::vector<T> list(int attribute) const {
    auto found = attributes.find(attribute);
    STAGECOACH_CHECK(found != attributes.end());
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <typename T>
  T get(int attribute) const {
    return list<T>(attribute).front();
  }
  const Descriptor& at(int attribute) const { return *get<Descriptor*>(attribute); }
};

size_t size_of_type(int type) {
  switch (type) {
    case CudnnType::kInt64:
    case CudnnType::kHandle:
    case CudnnType::kPointer:
    case CudnnType::kDescriptor:
      return 8;
    case CudnnType::kBoolean:
      return 1;
    default:
      return 4;
  }
}

DType storage_of(int type) {
  if (type == Value::kBfloat16) return DType::kBF16;
  return type == Value::kHalf ? DType::kF16 : DType::kF32;
}

/// Visits every position of `dims`, in row-major order.
template <typename Visit>
void for_each(const Extents& dims, const Visit& visit) {
  Extents at{};
  for (at[0] = 0; at[0] < dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) visit(at);
      }
    }
  }
}

/// A tensor's values in row-major order.
struct Values {
  Extents dims{};
  std::vector<float> numbers;

  float& at(const Extents& where) { return numbers[index(where)]; }
  /// Dimensions of one element hold for every position; fewer heads hold for several.
  float broadcast(const Extents& where, const Extents& of) const {
    Extents mine{};
    for (size_t i = 0; i < 4; ++i) {
      STAGECOACH_CHECK(of[i] % dims[i] == 0);
      mine[i] = where[i] / (of[i] / dims[i]);
    }
    return numbers[index(mine)];
  }
  size_t index(const Extents& where) const {
    return static_cast<size_t>(((where[0] * dims[1] + where[1]) * dims[2] + where[2]) * dims[3] +
                               where[3]);
  }
};

Extents extents_of(const Descriptor& tensor, int attribute) {
  std::vector<int64_t> list = tensor.list<int64_t>(attribute);
  STAGECOACH_CHECK(list.size() == 4);
  return {list[0], list[1], list[2], list[3]};
}

/// One run of a graph.
class Evaluation {
 public:
  explicit Evaluation(const Descriptor& pack) {
    std::vector<int64_t> ids = pack.list<int64_t>(Attribute::kPackIds);
    std::vector<std::byte*> pointers = pack.list<std::byte*>(Attribute::kPackPointers);
    STAGECOACH_CHECK(ids.size() == pointers.size());
    for (size_t i = 0; i < ids.size(); ++i) pointers_[ids[i]] = pointers[i];
  }

  void run(const Descriptor& operation) {
    switch (operation.kind) {
      case Kind::kPointwiseOperation:
        return pointwise(operation);
      case Kind::kMatmulOperation:
        return matmul(operation);
      case Kind::kReductionOperation:
        return reduce(operation);
      default:
        STAGECOACH_CHECK(operation.kind == Kind::kReshapeOperation);
        return reshape(operation);
    }
  }

 private:
  static bool is_virtual(const Descriptor& tensor) {
    return tensor.has(Attribute::kTensorIsVirtual);
  }
  /// Address of an element, for tensors that have memory.
  std::byte* address(const Descriptor& tensor, const Extents& where) {
    auto found = pointers_.find(tensor.get<int64_t>(Attribute::kTensorId));
    STAGECOACH_CHECK(found != pointers_.end());
    int64_t alignment = tensor.get<int64_t>(Attribute::kTensorAlignment);
    STAGECOACH_CHECK(
        tensor.has(Attribute::kTensorIsByValue) ||
        reinterpret_cast<uintptr_t>(found->second) % static_cast<uintptr_t>(alignment) == 0);
    Extents strides = extents_of(tensor, Attribute::kTensorStrides);
    int64_t offset = 0;
    for (size_t i = 0; i < 4; ++i) offset += where[i] * strides[i];
    DType dtype = storage_of(tensor.get<int>(Attribute::kTensorDataType));
    return found->second + offset * dtype_size_bytes(dtype);
  }
  Values load(const Descriptor& tensor) {
    if (is_virtual(tensor)) {
      auto found = inside_.find(&tensor);
      STAGECOACH_CHECK(found != inside_.end());
      return found->second;
    }
    Values values = empty(tensor);
    DType dtype = storage_of(tensor.get<int>(Attribute::kTensorDataType));
    for_each(values.dims, [&](const Extents& where) {
      values.at(where) = read_number(dtype, address(tensor, where));
    });
    return values;
  }
  void store(const Descriptor& tensor, Values values) {
    DType dtype = storage_of(tensor.get<int>(Attribute::kTensorDataType));
    if (!is_virtual(tensor)) {
      for_each(values.dims, [&](const Extents& where) {
        write_number(dtype, values.at(where), address(tensor, where));
      });
      return;
    }
    for (float& number : values.numbers) number = rounded(dtype, number);
    inside_[&tensor] = std::move(values);
  }
  static Values empty(const Descriptor& tensor) {
    Values values;
    values.dims = extents_of(tensor, Attribute::kTensorDimensions);
    int64_t count = 1;
    for (int64_t dim : values.dims) count *= dim;
    values.numbers.assign(static_cast<size_t>(count), 0.0f);
    return values;
  }

  void pointwise(const Descriptor& operation) {
    const Descriptor& how = operation.at(Attribute::kPointwiseDescriptor);
    int mode = how.get<int>(Attribute::kPointwiseMode);
    Values x = load(operation.at(Attribute::kPointwiseX));
    Values b, t;
    if (operation.has(Attribute::kPointwiseB)) b = load(operation.at(Attribute::kPointwiseB));
    if (operation.has(Attribute::kPointwiseT)) t = load(operation.at(Attribute::kPointwiseT));
    const Descriptor& target = operation.at(Attribute::kPointwiseY);
    Values y = empty(target);
    size_t axis = how.has(Attribute::kPointwiseAxis)
                      ? static_cast<size_t>(how.get<int64_t>(Attribute::kPointwiseAxis))
                      : 0;
    for_each(y.dims, [&](const Extents& where) {
      float first = x.broadcast(where, y.dims);
      float second = b.numbers.empty() ? 0.0f : b.broadcast(where, y.dims);
      bool choice = !t.numbers.empty() && t.broadcast(where, y.dims) != 0.0f;
      y.at(where) = combine(mode, first, second, choice, static_cast<float>(where[axis]));
    });
    store(target, std::move(y));
  }
  static float combine(int mode, float x, float b, bool choice, float index) {
    switch (mode) {
      case Value::kAdd:
        return x + b;
      case Value::kMul:
        return x * b;
      case Value::kDiv:
        return x / b;
      case Value::kSub:
        return x - b;
      case Value::kExp:
        return std::exp(x);
      case Value::kLog:
        return std::log(x);
      case Value::kIdentity:
        return x;
      case Value::kCompareGe:
        return x >= b ? 1.0f : 0.0f;
      case Value::kGenIndex:
        return index;
      default:
        STAGECOACH_CHECK(mode == Value::kBinarySelect);
        return choice ? x : b;
    }
  }
  void matmul(const Descriptor& operation) {
    Values a = load(operation.at(Attribute::kMatmulA));
    Values b = load(operation.at(Attribute::kMatmulB));
    const Descriptor& target = operation.at(Attribute::kMatmulC);
    Values c = empty(target);
    STAGECOACH_CHECK(a.dims[3] == b.dims[2] && c.dims[2] == a.dims[2] && c.dims[3] == b.dims[3]);
    Extents a_of = {c.dims[0], c.dims[1], a.dims[2], a.dims[3]};
    Extents b_of = {c.dims[0], c.dims[1], b.dims[2], b.dims[3]};
    for_each(c.dims, [&](const Extents& where) {
      float sum = 0.0f;
      for (int64_t k = 0; k < a.dims[3]; ++k) {
        sum += a.broadcast({where[0], where[1], where[2], k}, a_of) *
               b.broadcast({where[0], where[1], k, where[3]}, b_of);
      }
      c.at(where) = sum;
    });
    store(target, std::move(c));
  }
  void reduce(const Descriptor& operation) {
    const Descriptor& how = operation.at(Attribute::kReductionDescriptor);
    bool is_max = how.get<int>(Attribute::kReductionOperator) == Value::kReduceMax;
    Values x = load(operation.at(Attribute::kReductionX));
    const Descriptor& target = operation.at(Attribute::kReductionY);
    Values y = empty(target);
    if (is_max) y.numbers.assign(y.numbers.size(), -INFINITY);
    for_each(x.dims, [&](const Extents& where) {
      Extents to{};
      for (size_t i = 0; i < 4; ++i) {
        STAGECOACH_CHECK(x.dims[i] % y.dims[i] == 0);
        to[i] = where[i] / (x.dims[i] / y.dims[i]);
      }
      float value = x.at(where);
      y.at(to) = is_max ? std::max(y.at(to), value) : y.at(to) + value;
    });
    store(target, std::move(y));
  }
  /// All reshapes of attention swap the last two dimensions, and say so in their strides.
  void reshape(const Descriptor& operation) {
    const Descriptor& source = operation.at(Attribute::kReshapeX);
    const Descriptor& target = operation.at(Attribute::kReshapeY);
    Extents from = extents_of(source, Attribute::kTensorStrides);
    Extents to = extents_of(target, Attribute::kTensorStrides);
    STAGECOACH_CHECK(from[2] == to[3] && from[3] == to[2] && from[1] == to[1] && from[0] == to[0]);
    Values x = load(source);
    Values y = empty(target);
    for_each(y.dims, [&](const Extents& where) {
      y.at(where) = x.at({where[0], where[1], where[3], where[2]});
    });
    store(target, std::move(y));
  }

  std::map<int64_t, std::byte*> pointers_;
  std::map<const Descriptor*, Values> inside_;
};

int create_descriptor(int kind, void** handle) {
  auto* made = new Descriptor();
  made->kind = kind;
  *handle = made;
  ++fake_cudnn().objects;
  return CudnnStatus::kSuccess;
}

int destroy_descriptor(void* handle) {
  delete static_cast<Descriptor*>(handle);
  --fake_cudnn().objects;
  return CudnnStatus::kSuccess;
}

int finalize(void* handle) {
  auto& descriptor = *static_cast<Descriptor*>(handle);
  const FakeCudnn& fake = fake_cudnn();
  if (descriptor.kind == Kind::kOperationGraph && fake.finalize_error != 0) {
    return fake.finalize_error;
  }
  descriptor.is_final = true;
  return CudnnStatus::kSuccess;
}

int set_attribute(void* handle, int attribute, int type, int64_t count, const void* values) {
  auto& descriptor = *static_cast<Descriptor*>(handle);
  STAGECOACH_CHECK(!descriptor.is_final);
  const auto* bytes = static_cast<const std::byte*>(values);
  descriptor.attributes[attribute].assign(bytes,
                                          bytes + static_cast<size_t>(count) * size_of_type(type));
  if (type != CudnnType::kDescriptor) return CudnnStatus::kSuccess;
  for (const Descriptor* other : descriptor.list<Descriptor*>(attribute)) {
    if (!other->is_final) return kNotFinalized;
  }
  return CudnnStatus::kSuccess;
}

/// Bit-exact backward passes say in their graph that they sum nothing into scratch.
int64_t workspace_of(const Descriptor& graph) {
  bool is_backward = false, sums_in_scratch = false;
  int64_t scores = 0;
  for (const Descriptor* operation : graph.list<Descriptor*>(Attribute::kGraphOperations)) {
    is_backward = is_backward || operation->kind == Kind::kReshapeOperation;
    if (operation->kind != Kind::kPointwiseOperation) continue;
    Extents dims = extents_of(operation->at(Attribute::kPointwiseY), Attribute::kTensorDimensions);
    scores = std::max(scores, dims[0] * dims[1] * dims[2] * dims[3]);
    const Descriptor& how = operation->at(Attribute::kPointwiseDescriptor);
    sums_in_scratch =
        sums_in_scratch || how.get<int>(Attribute::kPointwiseMode) == Value::kIdentity;
  }
  bool keeps_scores = is_backward && !sums_in_scratch;
  return keeps_scores ? scores * fake_cudnn().workspace_bytes_a_score : 256;
}

void put(void* target, const void* value, size_t size) {
  if (target != nullptr) std::memcpy(target, value, size);
}

int get_attribute(void* handle, int attribute, int, int64_t wanted, int64_t* count, void* values) {
  auto& descriptor = *static_cast<Descriptor*>(handle);
  FakeCudnn& fake = fake_cudnn();
  switch (attribute) {
    case Attribute::kHeuristicResults: {
      ++fake.heuristics;
      *count = fake.finds_nothing ? 0 : 1;
      if (wanted == 0 || *count == 0) return CudnnStatus::kSuccess;
      // The configuration remembers its graph.
      auto& config = **static_cast<Descriptor**>(values);
      config.attributes[Attribute::kHeuristicGraph] =
          descriptor.attributes[Attribute::kHeuristicGraph];
      config.is_final = true;
      return CudnnStatus::kSuccess;
    }
    case Attribute::kConfigEngine:
      *count = 1;
      return CudnnStatus::kSuccess;
    case Attribute::kEngineNumericalNote:
      *count = fake.notes_random_bits ? 1 : 0;
      if (fake.notes_random_bits) put(values, &Value::kNoteNonDeterministic, sizeof(int));
      return CudnnStatus::kSuccess;
    default: {
      STAGECOACH_CHECK(attribute == Attribute::kPlanWorkspaceSize && descriptor.is_final);
      const Descriptor& config = descriptor.at(Attribute::kPlanConfig);
      int64_t size = workspace_of(config.at(Attribute::kHeuristicGraph));
      put(values, &size, sizeof(size));
      *count = 1;
      return CudnnStatus::kSuccess;
    }
  }
}

int execute(void*, void* plan, void* pack) {
  FakeCudnn& fake = fake_cudnn();
  if (fake.execute_error != 0) return fake.execute_error;
  ++fake.executions;
  const Descriptor& config = static_cast<Descriptor*>(plan)->at(Attribute::kPlanConfig);
  const Descriptor& graph = config.at(Attribute::kHeuristicGraph);
  const auto& variant = *static_cast<Descriptor*>(pack);
  STAGECOACH_CHECK(variant.is_final);
  std::memset(variant.get<void*>(Attribute::kPackWorkspace), 0xff,
              static_cast<size_t>(workspace_of(graph)));
  Evaluation evaluation(variant);
  for (const Descriptor* operation : graph.list<Descriptor*>(Attribute::kGraphOperations)) {
    evaluation.run(*operation);
  }
  return CudnnStatus::kSuccess;
}

int create(void** handle) {
  FakeCudnn& fake = fake_cudnn();
  if (fake.create_error != 0) return fake.create_error;
  *handle = new int(0);
  ++fake.objects;
  return CudnnStatus::kSuccess;
}

}  // namespace

FakeCudnn& fake_cudnn() {
  static FakeCudnn fake;
  return fake;
}

CudnnFunctions fake_cudnn_functions() {
  CudnnFunctions functions;
  functions.cudnnGetVersion = []() -> size_t { return fake_cudnn().version; };
  functions.cudnnGetErrorString = [](int) { return "CUDNN_STATUS_FAKE"; };
  functions.cudnnGetLastErrorString = [](char* text, size_t size) {
    std::snprintf(text, size, "the fake was told to fail");
  };
  functions.cudnnCreate = create;
  functions.cudnnDestroy = [](void* handle) {
    delete static_cast<int*>(handle);
    --fake_cudnn().objects;
    return CudnnStatus::kSuccess;
  };
  functions.cudnnSetStream = [](void*, void* stream) {
    fake_cudnn().stream = stream;
    return CudnnStatus::kSuccess;
  };
  functions.cudnnBackendCreateDescriptor = create_descriptor;
  functions.cudnnBackendDestroyDescriptor = destroy_descriptor;
  functions.cudnnBackendFinalize = finalize;
  functions.cudnnBackendSetAttribute = set_attribute;
  functions.cudnnBackendGetAttribute = get_attribute;
  functions.cudnnBackendExecute = execute;
  return functions;
}

}  // namespace stagecoach
