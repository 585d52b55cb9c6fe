#include <cstring>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_ops.h"
#include "backends/gpu/gpu_op_launch.h"
#include "tests/kernels/kernel_emulation.h"
#include "tests/kernels/op_case.h"

namespace stagecoach {

namespace {

/// Device buffers for the operands of one case, and the call that names them.
struct PlacedCase {
  OpCall call;
  std::vector<BufferHandle> buffers;
};

Result<PlacedCase> place(Device& device, const OpCase& test) {
  PlacedCase placed;
  placed.call = test.call;
  auto place_one = [&](const HostTensor& tensor, TensorView& view) {
    if (tensor.is_none()) return Status::ok();
    ByteCount size = static_cast<ByteCount>(tensor.bytes.size());
    STAGECOACH_ASSIGN_OR_RETURN(
        BufferHandle buffer,
        require_buffer(device.allocate(size, "operand"), device, size, "operand"));
    view = TensorView{buffer->view(), tensor.dtype, tensor.shape};
    placed.buffers.push_back(std::move(buffer));
    return Status::ok();
  };
  for (size_t i = 0; i < test.outputs.size(); ++i) {
    STAGECOACH_RETURN_IF_ERROR(place_one(test.outputs[i], placed.call.outputs[i]));
  }
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    STAGECOACH_RETURN_IF_ERROR(place_one(test.inputs[i], placed.call.inputs[i]));
  }
  return placed;
}

/// Moves bytes between a case and its views: move_bytes(host bytes, view, to the device?).
template <typename Move>
Status for_operands(const OpCase& test, const OpCall& call, const Move& move) {
  for (size_t i = 0; i < test.outputs.size(); ++i) {
    if (!test.outputs[i].is_none()) {
      STAGECOACH_RETURN_IF_ERROR(move(test.outputs[i], call.outputs[i]));
    }
  }
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    if (!test.inputs[i].is_none()) {
      STAGECOACH_RETURN_IF_ERROR(move(test.inputs[i], call.inputs[i]));
    }
  }
  return Status::ok();
}

/// Cases whose operands are host memory: a CPU device's.
class HostMachine : public OpMachine {
 public:
  HostMachine() {
    DeviceSpec spec;
    spec.backend = "cpu";
    spec.which = "1";
    spec.text = "cpu:1";
    auto devices = make_cpu_backend()->open(spec);
    STAGECOACH_CHECK(devices.is_ok());
    device_ = std::move(devices->front());
  }

  Result<OpOutputs> run(const OpCase& test) override {
    STAGECOACH_ASSIGN_OR_RETURN(PlacedCase placed, place(*device_, test));
    auto address = [](const TensorView& view) {
      return reinterpret_cast<std::byte*>(view.memory.buffer->device_address());
    };
    auto write = [&](const HostTensor& tensor, const TensorView& view) {
      std::memcpy(address(view), tensor.bytes.data(), tensor.bytes.size());
      return Status::ok();
    };
    STAGECOACH_RETURN_IF_ERROR(for_operands(test, placed.call, write));
    STAGECOACH_RETURN_IF_ERROR(validate_op(placed.call, *device_));
    STAGECOACH_RETURN_IF_ERROR(compute(placed.call));
    OpOutputs outputs = test.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].is_none()) continue;
      std::memcpy(outputs[i].bytes.data(), address(placed.call.outputs[i]),
                  outputs[i].bytes.size());
    }
    return outputs;
  }

 private:
  virtual Status compute(const OpCall& call) = 0;

  std::unique_ptr<Device> device_;
};

class OracleMachine final : public HostMachine {
 private:
  Status compute(const OpCall& call) override { return run_cpu_op(call, *pool_); }
  std::unique_ptr<TaskPool> pool_ = TaskPool::create(usable_thread_count());
};

class EmulatedMachine final : public HostMachine {
 public:
  explicit EmulatedMachine(GpuLibrary* library) : library_(library) {
    // Emulation takes the shapes of cards without matrix units.
    arch_.is_amd = true;
    arch_.major = 10;
    arch_.multiprocessors = 8;
    arch_.shared_bytes = 96 * 1024;
  }

 private:
  Status compute(const OpCall& call) override {
    STAGECOACH_ASSIGN_OR_RETURN(GpuLaunchPlan plan, plan_op(call, arch_));
    uint64_t error_word = ~uint64_t{0};
    STAGECOACH_RETURN_IF_ERROR(emulate_plan(plan, &error_word, library_));
    if (error_word == ~uint64_t{0}) return Status::ok();
    return data_loss("row " + std::to_string(error_word));
  }
  GpuLibrary* const library_;
  GpuArch arch_;
};

class DeviceMachine final : public OpMachine {
 public:
  explicit DeviceMachine(Device& device) : device_(device) {
    auto stream = device.create_stream({"compute"});
    STAGECOACH_CHECK(stream.is_ok());
    stream_ = std::move(*stream);
  }

  Result<OpOutputs> run(const OpCase& test) override {
    STAGECOACH_ASSIGN_OR_RETURN(PlacedCase placed, place(device_, test));
    OpOutputs outputs = test.outputs;
    Status status = run_placed(test, placed.call, outputs);
    Status finished = stream_->synchronize();
    STAGECOACH_RETURN_IF_ERROR(status);
    STAGECOACH_RETURN_IF_ERROR(finished);
    return outputs;
  }

 private:
  Status run_placed(const OpCase& test, const OpCall& call, OpOutputs& outputs) {
    auto write = [&](const HostTensor& tensor, const TensorView& view) {
      return copy(const_cast<std::byte*>(tensor.bytes.data()), view.memory, true);
    };
    STAGECOACH_RETURN_IF_ERROR(for_operands(test, call, write));
    Result<Timepoint> ran = device_.ops().run(*stream_, call);
    STAGECOACH_RETURN_IF_ERROR(ran.is_ok() ? Status::ok() : ran.status());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].is_none()) continue;
      STAGECOACH_RETURN_IF_ERROR(copy(outputs[i].bytes.data(), call.outputs[i].memory, false));
    }
    return Status::ok();
  }

  /// Through a pinned piece, and done when it returns.
  Status copy(std::byte* host, BufferView memory, bool to_device) {
    STAGECOACH_ASSIGN_OR_RETURN(BufferHandle pinned,
                                require_buffer(device_.allocate_pinned(memory.size, "staging"),
                                               device_, memory.size, "staging"));
    size_t size = static_cast<size_t>(memory.size);
    if (to_device) std::memcpy(pinned->host_data(), host, size);
    CopyRequest request;
    request.target = to_device ? memory : pinned->view();
    request.source = to_device ? pinned->view() : memory;
    request.label = "operand";
    Result<Timepoint> copied = stream_->copy(request);
    STAGECOACH_RETURN_IF_ERROR(copied.is_ok() ? Status::ok() : copied.status());
    STAGECOACH_RETURN_IF_ERROR(stream_->synchronize());
    if (!to_device) std::memcpy(host, pinned->host_data(), size);
    return Status::ok();
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<OpMachine> oracle_machine() {
  return std::make_unique<OracleMachine>();
}

std::unique_ptr<OpMachine> emulated_machine(GpuLibrary* library) {
  return std::make_unique<EmulatedMachine>(library);
}

std::unique_ptr<OpMachine> device_machine(Device& device) {
  return std::make_unique<DeviceMachine>(device);
}

}  // namespace stagecoach
