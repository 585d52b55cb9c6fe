#include "backends/cpu/cpu_executable.h"

#include <fmt/format.h>

#include "core/suggest.h"

namespace stagecoach {

namespace {

char kind_letter(KernelArgument::Kind kind) {
  switch (kind) {
    case KernelArgument::Kind::kPointer:
      return 'p';
    case KernelArgument::Kind::kInt64:
      return 'i';
    case KernelArgument::Kind::kFloat:
      return 'f';
  }
  return '?';
}

class CpuExecutable final : public Executable {
 public:
  explicit CpuExecutable(std::span<const CpuKernelEntry> entries) {
    for (const CpuKernelEntry& entry : entries) {
      kernels_.push_back(std::make_unique<CpuKernel>(entry));
    }
  }

  Result<Kernel*> find_kernel(std::string_view name) override {
    for (const auto& kernel : kernels_) {
      if (kernel->name() == name) return static_cast<Kernel*>(kernel.get());
    }
    std::vector<std::string> names;
    for (const auto& kernel : kernels_) names.emplace_back(kernel->name());
    std::string nearest = nearest_name(name, names);
    return not_found(
        nearest.empty()
            ? fmt::format("no kernel '{}' in this executable", name)
            : fmt::format("no kernel '{}' in this executable; did you mean '{}'?", name, nearest));
  }

 private:
  std::vector<std::unique_ptr<CpuKernel>> kernels_;
};

}  // namespace

Status CpuKernel::check(const LaunchRequest& request) const {
  std::string letters;
  for (int i = 0; i < request.argument_count; ++i)
    letters += kind_letter(request.arguments[i].kind);
  if (letters == entry_.signature) return Status::ok();
  return invalid_argument(
      fmt::format("kernel '{}' takes arguments '{}', not '{}' (p pointer, i "
                  "integer, f float)",
                  entry_.name, entry_.signature, letters));
}

Status CpuKernel::run(const LaunchRequest& request) const {
  CpuKernelCall call{request.grid, request.block, {}};
  for (int i = 0; i < request.argument_count; ++i) {
    const KernelArgument& argument = request.arguments[i];
    CpuKernelArgument& target = call.arguments[i];
    target.integer = argument.integer;
    target.real = argument.real;
    if (argument.kind != KernelArgument::Kind::kPointer) continue;
    const BufferView& view = argument.pointer;
    target.pointer = reinterpret_cast<std::byte*>(view.buffer->device_address()) + view.offset;
    target.size = view.size;
  }
  return entry_.function(call);
}

Result<std::unique_ptr<Executable>> load_cpu_executable(const ExecutableImage& image) {
  if (image.name != kTestKernelsName) {
    return not_found(fmt::format("the cpu backend has no kernel table '{}'; it has '{}'",
                                 image.name, kTestKernelsName));
  }
  return std::unique_ptr<Executable>(std::make_unique<CpuExecutable>(cpu_test_kernels()));
}

}  // namespace stagecoach
