#include "tests/backends/op_test_rig.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_ops.h"

namespace stagecoach {

namespace {

uint64_t run_seed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("STAGECOACH_TEST_SEED");
    uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
    std::printf("inputs drawn with STAGECOACH_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

std::byte* data_of(const TensorView& tensor) {
  return reinterpret_cast<std::byte*>(tensor.memory.buffer->device_address()) +
         tensor.memory.offset;
}

double read_element(DType dtype, const std::byte* data) {
  auto load = [data](auto value) {
    std::memcpy(&value, data, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(load(float{}));
    case DType::kBF16:
      return static_cast<double>(to_float(load(BFloat16{})));
    case DType::kF16:
      return static_cast<double>(to_float(load(Float16{})));
    case DType::kI32:
      return load(int32_t{});
    case DType::kF64:
      return load(double{});
    case DType::kU64:
      return static_cast<double>(load(uint64_t{}));
    case DType::kI16:
      return load(int16_t{});
  }
  return 0.0;
}

void write_element(DType dtype, double value, std::byte* data) {
  auto store = [data](auto element) { std::memcpy(data, &element, sizeof(element)); };
  float single = static_cast<float>(value);
  if (dtype == DType::kF32) store(single);
  if (dtype == DType::kBF16) store(to_bfloat16(single));
  if (dtype == DType::kF16) store(to_float16(single));
  if (dtype == DType::kF64) store(value);
}

}  // namespace

OpTestRig::OpTestRig() : engine_(run_seed()) {
  std::unique_ptr<Backend> backend = make_cpu_backend();
  DeviceSpec spec;
  spec.backend = "cpu";
  spec.which = "1";
  spec.text = "cpu:1";
  auto devices = backend->open(spec);
  STAGECOACH_CHECK(devices.is_ok());
  device_ = std::move(devices->front());
  for (int threads = 1; threads <= 4; ++threads) pools_.push_back(TaskPool::create(threads));
}

Values OpTestRig::random(int64_t count, DType dtype, double spread) {
  std::normal_distribution<double> normal(0.0, spread);
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = normal(engine_);
  return rounded(dtype, std::move(values));
}

Ids OpTestRig::random_ids(int64_t count, int64_t limit) {
  std::uniform_int_distribution<int64_t> uniform(0, limit - 1);
  Ids ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(uniform(engine_));
  return ids;
}

TensorView OpTestRig::poisoned(DType dtype, const Shape& shape) {
  TensorView tensor{{}, dtype, shape};
  Allocation allocation = device_->allocate(tensor.size_bytes(), "test");
  STAGECOACH_CHECK(allocation.outcome == AllocationOutcome::kOk);
  tensor.memory = allocation.buffer->view();
  buffers_.push_back(std::move(allocation.buffer));
  std::memset(data_of(tensor), 0xff, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

TensorView OpTestRig::tensor(DType dtype, const Shape& shape, const Values& values) {
  TensorView tensor = poisoned(dtype, shape);
  STAGECOACH_CHECK(tensor.element_count() == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    size_t offset = i * static_cast<size_t>(dtype_size_bytes(dtype));
    write_element(dtype, values[i], data_of(tensor) + offset);
  }
  return tensor;
}

TensorView OpTestRig::tensor(const Ids& ids) {
  TensorView tensor = poisoned(DType::kI32, {static_cast<int64_t>(ids.size())});
  std::memcpy(data_of(tensor), ids.data(), ids.size() * sizeof(int32_t));
  return tensor;
}

Values OpTestRig::read(const TensorView& tensor) {
  Values values;
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    values.push_back(
        read_element(tensor.dtype, data_of(tensor) + i * dtype_size_bytes(tensor.dtype)));
  }
  return values;
}

std::vector<std::byte> OpTestRig::bytes(const TensorView& tensor) {
  return {data_of(tensor), data_of(tensor) + tensor.size_bytes()};
}

Status OpTestRig::run_once(const OpCall& call) {
  STAGECOACH_RETURN_IF_ERROR(validate_op(call, *device_));
  return run_cpu_op(call, *pools_[1]);
}

void OpTestRig::run(const OpCall& call) {
  Status valid = validate_op(call, *device_);
  ASSERT_TRUE(valid.is_ok()) << valid.to_string();
  std::vector<std::vector<std::byte>> before;
  std::vector<std::vector<std::byte>> first;
  for (const TensorView& output : call.outputs) {
    before.push_back(output.is_none() ? std::vector<std::byte>() : bytes(output));
  }
  for (size_t turn = 0; turn < 5; ++turn) {
    for (size_t i = 0; turn > 0 && i < before.size(); ++i) {
      if (!before[i].empty()) {
        std::memcpy(data_of(call.outputs[i]), before[i].data(), before[i].size());
      }
    }
    Status status = run_cpu_op(call, *pools_[turn % 4]);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    for (size_t i = 0; i < before.size(); ++i) {
      std::vector<std::byte> after = before[i].empty() ? before[i] : bytes(call.outputs[i]);
      if (turn == 0) first.push_back(after);
      EXPECT_TRUE(after == first[i]) << op_kind_name(call.kind) << ": bits of output " << i
                                     << " differ with " << turn % 4 + 1 << " threads";
    }
  }
}

OpCall make_call(OpKind kind, std::initializer_list<TensorView> outputs,
                 std::initializer_list<TensorView> inputs) {
  OpCall call;
  call.kind = kind;
  call.label = "tested";
  std::copy(outputs.begin(), outputs.end(), call.outputs.begin());
  std::copy(inputs.begin(), inputs.end(), call.inputs.begin());
  return call;
}

Values rounded(DType dtype, Values values) {
  for (double& value : values) {
    std::byte element[8] = {};
    write_element(dtype, value, element);
    value = read_element(dtype, element);
  }
  return values;
}

Values sum(const Values& left, const Values& right) {
  Values result = left;
  for (size_t i = 0; i < result.size(); ++i) result[i] += right[i];
  return result;
}

Values product(const Values& left, const Values& right) {
  Values result = left;
  for (size_t i = 0; i < result.size(); ++i) result[i] *= right[i];
  return result;
}

double relative_error(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    difference += std::pow(actual[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
}

double logarithm_error(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    worst =
        std::max(worst, std::abs(actual[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
  }
  return worst;
}

double tolerance(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : 1e-2;
}

}  // namespace stagecoach
