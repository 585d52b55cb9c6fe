#pragma once

#include <array>
#include <string>

#include "backends/gpu/gpu_stream.h"
#include "hal/ops.h"

namespace stagecoach {

/// The math of a GPU: looks up the launches that make an op and queues them on its stream.
template <typename Api>
class GpuOps final : public Ops {
 public:
  explicit GpuOps(const GpuKernelTable& table) { list_providers(table, nullptr, ""); }
  std::string_view provider(OpKind kind) const override {
    return providers_[static_cast<size_t>(kind)];
  }
  /// Notes what serves each op: a library where it says so, else kernels of the table; `remark`
  /// goes behind the kernels of ops that libraries could serve. Before any op runs.
  void list_providers(const GpuKernelTable& table, const GpuLibrary* library,
                      std::string_view remark) {
    for (int i = 0; i < kOpKindCount; ++i) {
      auto kind = static_cast<OpKind>(i);
      std::string& text = providers_[static_cast<size_t>(i)];
      text = library == nullptr ? "" : library->provider(kind);
      if (!text.empty()) continue;
      text = table.provider(kind);
      if (library_might_serve(kind)) text += remark;
    }
  }

 private:
  Status do_run(Stream& stream, const OpCall& call) override {
    return static_cast<GpuStream<Api>&>(stream).run_op(call);
  }

  std::array<std::string, kOpKindCount> providers_;
};

}  // namespace stagecoach
