#include "tests/fake_gpu/fake_gpu_machine.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/cpu_executable.h"
#include "backends/cpu/cpu_ops.h"
#include "backends/gpu/gpu_op_launch.h"

namespace stagecoach {

namespace {

constexpr const char* kOracleKernel = "oracle";

std::span<const std::byte> as_image(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size() + 1));  // literals end in zero
}

/// A kernel of the CPU backend's test table, as the fake driver calls it.
struct TestKernel {
  const CpuKernelEntry* entry;
  FakeGpuDriver* driver;
};

int run_test_kernel(void* user, const uint64_t* arguments) {
  const auto& kernel = *static_cast<TestKernel*>(user);
  CpuKernelCall call{};
  for (size_t i = 0; i < kernel.entry->signature.size(); ++i) {
    CpuKernelArgument& argument = call.arguments[i];
    uint64_t word = arguments[i];
    switch (kernel.entry->signature[i]) {
      case 'p':
        argument.pointer = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(word));
        argument.size = static_cast<ByteCount>(kernel.driver->bytes_behind(word));
        break;
      case 'i':
        argument.integer = static_cast<int64_t>(word);
        break;
      default:
        std::memcpy(&argument.real, &word, sizeof(argument.real));
    }
  }
  return kernel.entry->function(call).is_ok() ? 0 : FakeGpuError::kIllegalAddress;
}

void add_test_kernels(FakeGpuDriver& driver) {
  for (const CpuKernelEntry& entry : cpu_test_kernels()) {
    FakeGpuKernel kernel;
    kernel.name = std::string(entry.name);
    kernel.argument_count = static_cast<int>(entry.signature.size());
    kernel.function = run_test_kernel;
    // Belongs to the process: a driver's threads may run it until the driver ends.
    static std::vector<std::unique_ptr<TestKernel>>& kept =
        *new std::vector<std::unique_ptr<TestKernel>>;
    kept.push_back(std::make_unique<TestKernel>(TestKernel{&entry, &driver}));
    kernel.user = kept.back().get();
    driver.add_kernel(std::move(kernel));
  }
}

}  // namespace

OracleKernelTable::OracleKernelTable(FakeGpuDriver& driver) : pool_(TaskPool::create(1)) {
  code_.image = as_image(kFakeModule);
  code_.targets = {"fake_90"};
  code_.build_flag = "FAKE_ARCHS";
  FakeGpuKernel kernel;
  kernel.name = kOracleKernel;
  kernel.argument_count = 3;
  kernel.function = &OracleKernelTable::run;
  kernel.user = this;
  driver.add_kernel(std::move(kernel));
}

Result<GpuLaunchPlan> OracleKernelTable::plan(const OpCall& call, const GpuArch& arch) {
  GpuLaunchPlan plan;
  plan.workspace_bytes = workspace_bytes_;
  if (takes_workspace_of_kernels_) {
    GpuArch card = arch;
    constexpr ByteCount kPlenty = 1 << 20;
    card.shared_bytes = kPlenty;
    STAGECOACH_ASSIGN_OR_RETURN(GpuLaunchPlan own, plan_op(call, card));
    plan.workspace_bytes = std::max(plan.workspace_bytes, own.workspace_bytes);
  }
  plan.launch_count = 1;
  GpuKernelLaunch& launch = plan.launches[0];
  launch.kernel = kOracleKernel;
  launch.arguments[0] = keep(call);
  launch.argument_count = 3;
  launch.workspace_arguments = 1u << 1;
  launch.error_arguments = 1u << 2;
  if (describes_for_libraries_ && library_might_serve(call.kind)) describe(call, plan);
  return plan;
}

void OracleKernelTable::KeptCall::assign(const OpCall& given) {
  call = given;
  auto next = memory.begin();
  auto replace = [&next](TensorView& tensor) {
    std::optional<Buffer>& own = *next++;
    Buffer*& buffer = tensor.memory.buffer;
    if (buffer == nullptr) return;
    own.emplace(buffer->device(), buffer->kind(), buffer->device_address(), buffer->size(),
                buffer->label());
    buffer = &*own;
  };
  for (TensorView& tensor : call.outputs) replace(tensor);
  for (TensorView& tensor : call.inputs) replace(tensor);
}

uint64_t OracleKernelTable::keep(const OpCall& call) {
  std::lock_guard lock(mutex_);
  if (describes_for_libraries_ && library_might_serve(call.kind)) {
    uint64_t index = ring_next_++ % kRing;
    ring_[index].assign(call);
    return kRingStart + index;
  }
  if (free_.empty()) {
    calls_.push_back(std::make_unique<KeptCall>());
    free_.reserve(calls_.size());
    free_.push_back(calls_.size() - 1);
  }
  size_t position = free_.back();
  free_.pop_back();
  calls_[position]->assign(call);
  return position;
}

OracleKernelTable::KeptCall& OracleKernelTable::kept(uint64_t position) {
  std::lock_guard lock(mutex_);
  return position >= kRingStart ? ring_[position - kRingStart] : *calls_[position];
}

void OracleKernelTable::give_back(uint64_t position) {
  if (position >= kRingStart) return;
  std::lock_guard lock(mutex_);
  free_.push_back(position);
}

void OracleKernelTable::describe(const OpCall& call, GpuLaunchPlan& plan) {
  GpuArch arch;
  constexpr ByteCount kPlenty = 1 << 20;
  arch.shared_bytes = kPlenty;
  Result<GpuLaunchPlan> own = plan_op(call, arch);
  STAGECOACH_CHECK(own.is_ok());
  // A product among other launches cannot stand in for the one launch that computes all.
  if (own->launch_count == 1 && own->product_count == 1) {
    plan.products[0] = own->products[0];
    plan.product_count = 1;
  }
  plan.attention = own->attention;
}

int OracleKernelTable::run(void* user, const uint64_t* arguments) {
  auto& table = *static_cast<OracleKernelTable*>(user);
  const OpCall& call = table.kept(arguments[0]).call;
  ByteCount scratch = table.workspace_bytes_;
  if (scratch > 0) {
    std::memset(reinterpret_cast<void*>(static_cast<uintptr_t>(arguments[1])), 0xff,
                static_cast<size_t>(scratch));
  }
  Status status = run_cpu_op(call, *table.pool_);
  table.give_back(arguments[0]);
  if (status.code() == StatusCode::kDataLoss) {
    // As a kernel does: the row goes into the error word, and the card goes on.
    std::atomic_ref(*reinterpret_cast<uint64_t*>(static_cast<uintptr_t>(arguments[2]))).store(0);
    return 0;
  }
  return status.is_ok() ? 0 : FakeGpuError::kLaunchFailed;
}

std::string_view OracleKernelTable::provider(OpKind) const {
  return "CPU oracle";
}

FakeGpuMachine::FakeGpuMachine(const FakeGpuOptions& options, GpuLibraryOpener open_library)
    : driver_(options),
      table_(std::make_shared<OracleKernelTable>(driver_)),
      open_library_(std::move(open_library)),
      backend_(make_backend()) {
  add_test_kernels(driver_);
}

Result<std::vector<std::unique_ptr<Device>>> FakeGpuMachine::open(const std::string& which) {
  STAGECOACH_ASSIGN_OR_RETURN(auto specs, parse_device_specs("fake_gpu:" + which));
  return backend_->open(specs.front());
}

ExecutableImage FakeGpuMachine::test_kernels() {
  return ExecutableImage{"test kernels", as_image(kFakeModule)};
}

}  // namespace stagecoach
