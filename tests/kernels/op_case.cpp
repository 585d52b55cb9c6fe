#include "tests/kernels/op_case.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>

namespace stagecoach {

namespace {

template <typename T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

double read_element(DType dtype, const std::byte* data) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(load<float>(data));
    case DType::kBF16:
      return static_cast<double>(to_float(load<BFloat16>(data)));
    case DType::kF16:
      return static_cast<double>(to_float(load<Float16>(data)));
    case DType::kI32:
      return load<int32_t>(data);
    case DType::kF64:
      return load<double>(data);
    case DType::kU64:
      return static_cast<double>(load<uint64_t>(data));
    case DType::kI16:
      return load<int16_t>(data);
  }
  return 0.0;
}

void write_element(DType dtype, double value, std::byte* data) {
  auto store = [data](auto element) { std::memcpy(data, &element, sizeof(element)); };
  float single = static_cast<float>(value);
  if (dtype == DType::kF32) store(single);
  if (dtype == DType::kBF16) store(to_bfloat16(single));
  if (dtype == DType::kF16) store(to_float16(single));
  if (dtype == DType::kI32) store(static_cast<int32_t>(value));
}

HostTensor make_tensor(DType dtype, const Shape& shape, std::byte fill) {
  HostTensor tensor{dtype, shape, {}};
  tensor.bytes.assign(static_cast<size_t>(shape.element_count() * dtype_size_bytes(dtype)), fill);
  return tensor;
}

/// Bits, not numbers, which have no wider form.
bool is_split(OpKind kind) {
  return kind == OpKind::kJoinMaster || kind == OpKind::kSplitMaster;
}

bool is_update(OpKind kind) {
  return kind == OpKind::kAdamW || is_split(kind);
}

bool is_16_bit(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b, size_t first,
                          size_t end) {
  double sum = 0.0;
  for (size_t i = first; i < end; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// What fp32 arithmetic may lose in `count` elements whose terms cancel.
double cancellation(const OpCase& test, size_t count) {
  constexpr double kUnits = 4.0;  // of the last place: a few roundings a term
  return kUnits * 0x1p-23 * test.largest_term * std::sqrt(static_cast<double>(count));
}

/// The rule for single rows of 16-bit outputs.
std::string compare_rows(const OpCase& test, const HostTensor& tensor,
                         const std::vector<double>& actual, const std::vector<double>& oracle,
                         const std::vector<double>& exact) {
  size_t columns = static_cast<size_t>(tensor.shape[tensor.shape.rank - 1]);
  // Half a unit in the last place of the row's typical element: a row may be right by luck.
  double unit = tensor.dtype == DType::kBF16 ? 0x1p-9 : 0x1p-12;
  std::vector<double> none(exact.size(), 0.0);
  for (size_t first = 0; first < actual.size(); first += columns) {
    size_t end = first + columns;
    double allowed = 2.0 * norm_of_difference(oracle, exact, first, end) +
                     unit * norm_of_difference(exact, none, first, end) +
                     cancellation(test, columns);
    double error = norm_of_difference(actual, exact, first, end);
    if (error <= allowed) continue;
    return fmt::format("row {} is off by {:.3g}, allowed {:.3g}", first / columns, error, allowed);
  }
  return "";
}

}  // namespace

std::vector<double> HostTensor::values() const {
  std::vector<double> result;
  size_t size = static_cast<size_t>(dtype_size_bytes(dtype));
  for (size_t at = 0; at < bytes.size(); at += size) {
    result.push_back(read_element(dtype, bytes.data() + at));
  }
  return result;
}

HostTensor CaseMaker::random(DType dtype, const Shape& shape, double spread, double mean) {
  HostTensor tensor = make_tensor(dtype, shape, std::byte{0});
  std::normal_distribution<double> normal(mean, spread);
  size_t size = static_cast<size_t>(dtype_size_bytes(dtype));
  for (size_t at = 0; at < tensor.bytes.size(); at += size) {
    write_element(dtype, normal(engine_), tensor.bytes.data() + at);
  }
  return tensor;
}

HostTensor CaseMaker::ids(int64_t count, int64_t least, int64_t limit) {
  HostTensor tensor = make_tensor(DType::kI32, {count}, std::byte{0});
  std::uniform_int_distribution<int64_t> uniform(least, limit - 1);
  for (size_t at = 0; at < tensor.bytes.size(); at += 4) {
    write_element(DType::kI32, static_cast<double>(uniform(engine_)), tensor.bytes.data() + at);
  }
  return tensor;
}

HostTensor CaseMaker::document_starts(int64_t rows, int64_t sequence, int64_t longest) {
  HostTensor tensor = make_tensor(DType::kI32, {rows}, std::byte{0});
  std::uniform_int_distribution<int64_t> length(1, longest);
  int64_t start = 0, end = 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t position = row % sequence;
    if (position == 0 || position >= end) {
      start = position;
      end = position + length(engine_);
    }
    write_element(DType::kI32, static_cast<double>(start), tensor.bytes.data() + 4 * row);
  }
  return tensor;
}

HostTensor CaseMaker::poisoned(DType dtype, const Shape& shape) {
  return make_tensor(dtype, shape, std::byte{0xff});
}

HostTensor CaseMaker::zeros(DType dtype, const Shape& shape) {
  return make_tensor(dtype, shape, std::byte{0});
}

OpOutputs CaseMaker::forward(const OpCase& test) {
  Result<OpOutputs> outputs = oracle_->run(test);
  STAGECOACH_CHECK(outputs.is_ok());
  return std::move(outputs).value();
}

OpCase make_case(std::string name, OpKind kind, std::initializer_list<HostTensor> outputs,
                 std::initializer_list<HostTensor> inputs) {
  OpCase test;
  test.name = std::move(name);
  test.call.kind = kind;
  test.call.label = "case";
  std::copy(outputs.begin(), outputs.end(), test.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), test.inputs.begin());
  return test;
}

OpCase in_fp32(const OpCase& test) {
  OpCase wide = test;
  if (is_split(test.call.kind)) return wide;
  auto widen = [](HostTensor& tensor) {
    if (!is_16_bit(tensor.dtype) || tensor.is_none()) return;
    HostTensor result = make_tensor(DType::kF32, tensor.shape, std::byte{0});
    std::vector<double> values = tensor.values();
    for (size_t i = 0; i < values.size(); ++i) {
      write_element(DType::kF32, values[i], result.bytes.data() + 4 * i);
    }
    tensor = std::move(result);
  };
  for (HostTensor& tensor : wide.outputs) widen(tensor);
  for (HostTensor& tensor : wide.inputs) widen(tensor);
  return wide;
}

std::string compare_outputs(const OpCase& test, const OpOutputs& actual, const OpOutputs& oracle,
                            const OpOutputs& exact) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (test.outputs[i].is_none()) continue;
    DType dtype = actual[i].dtype;
    // Updates may be shared between host and devices.
    if (is_update(test.call.kind) || dtype == DType::kU64 || dtype == DType::kF64 ||
        dtype == DType::kI32) {
      if (actual[i].bytes == oracle[i].bytes) continue;
      return fmt::format("output {} has other bits than the oracle's", i);
    }
    std::vector<double> values = actual[i].values();
    std::vector<double> expected = oracle[i].values();
    std::vector<double> none(expected.size(), 0.0);
    double norm = norm_of_difference(expected, none, 0, expected.size());
    double error = norm_of_difference(values, expected, 0, values.size());
    // fp32 results of 16-bit operands may have been rounded on the way.
    bool coarse = is_16_bit(test.inputs[0].dtype) || is_16_bit(test.inputs[1].dtype);
    double allowed =
        (is_16_bit(dtype) || coarse ? 1e-2 : 1e-5) * norm + cancellation(test, values.size());
    if (!(error <= allowed)) {
      return fmt::format("output {}: error {:.3g}, allowed {:.3g}", i, error, allowed);
    }
    if (!is_16_bit(dtype)) continue;
    std::string row = compare_rows(test, actual[i], values, expected, exact[i].values());
    if (!row.empty()) return fmt::format("output {}: {}", i, row);
  }
  return "";
}

}  // namespace stagecoach
