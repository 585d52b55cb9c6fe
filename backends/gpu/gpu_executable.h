#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/gpu/gpu_context.h"
#include "hal/executable.h"

namespace stagecoach {

/// A function of a loaded module.
template <typename Api>
class GpuKernel final : public Kernel {
 public:
  GpuKernel(std::string name, GpuFunctionHandle handle, GpuContextHandle context)
      : name_(std::move(name)), handle_(handle), context_(context) {}
  std::string_view name() const override { return name_; }
  GpuFunctionHandle handle() const { return handle_; }
  /// Where it is loaded: it runs on streams of this context alone.
  GpuContextHandle context() const { return context_; }
  /// Lets the kernel take `bytes` of dynamic shared memory; cheap once it may.
  int allow_shared_bytes(const Api& api, uint32_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes <= allowed_shared_bytes_) return Api::kSuccess;
    int error = api.set_function_shared_bytes(handle_, static_cast<int>(bytes));
    if (error == Api::kSuccess) allowed_shared_bytes_ = bytes;
    return error;
  }

 private:
  static constexpr uint32_t kAlwaysAllowedSharedBytes = 48u * 1024u;

  const std::string name_;
  const GpuFunctionHandle handle_;
  const GpuContextHandle context_;
  std::mutex mutex_;
  uint32_t allowed_shared_bytes_ = kAlwaysAllowedSharedBytes;
};

/// Device code in one context. Thread rule: any thread.
template <typename Api>
class GpuExecutable final : public Executable {
 public:
  /// `device` names the place in messages; `before_unload` waits for work that its caller could
  /// not; false: the code must stay.
  GpuExecutable(std::string device, const Api& api, GpuContextHandle context,
                std::function<bool()> before_unload = nullptr)
      : device_(std::move(device)),
        api_(api),
        context_(context),
        before_unload_(std::move(before_unload)) {}
  ~GpuExecutable() override {
    if (module_ == nullptr) return;
    if (before_unload_ != nullptr && !before_unload_()) return;
    GpuScope<Api> scope(api_, context_);
    static_cast<void>(scope.run([&] { return api_.unload_module(module_); }));
  }

  /// Loads `image`, whose driver error is returned for the caller to explain.
  int load(const std::byte* image) {
    GpuScope<Api> scope(api_, context_);
    return scope.run([&] { return api_.load_module(&module_, image); });
  }

  /// The code stays loaded until the program ends.
  void keep() { module_ = nullptr; }

  Result<Kernel*> find_kernel(std::string_view name) override {
    STAGECOACH_ASSIGN_OR_RETURN(GpuKernel<Api> * kernel, find(name));
    return static_cast<Kernel*>(kernel);
  }

  /// The same with its own type; allocates only the first time a name is asked for.
  Result<GpuKernel<Api>*> find(std::string_view name) {
    std::lock_guard lock(mutex_);
    auto found = kernels_.find(name);
    if (found != kernels_.end()) return found->second.get();
    std::string text(name);
    GpuFunctionHandle handle = nullptr;
    GpuScope<Api> scope(api_, context_);
    int error = scope.run([&] { return api_.get_function(&handle, module_, text.c_str()); });
    if (error != Api::kSuccess) {
      const FailureSite site{device_, "", "find kernel", text, 0};
      Status status = gpu_status(api_, error, "get function");
      if (status.code() != StatusCode::kNotFound) return status.with_site(site);
      return not_found(fmt::format("no kernel '{}' in this executable", name)).with_site(site);
    }
    auto kernel = std::make_unique<GpuKernel<Api>>(text, handle, context_);
    return kernels_.emplace(std::move(text), std::move(kernel)).first->second.get();
  }

 private:
  const std::string device_;
  const Api& api_;
  const GpuContextHandle context_;
  const std::function<bool()> before_unload_;
  GpuModuleHandle module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<GpuKernel<Api>>, std::less<>> kernels_;
};

}  // namespace stagecoach
