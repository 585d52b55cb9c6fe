#include "tools/bandwidth/thread_place.h"

#include <fmt/format.h>

#include "core/thread_task_pool.h"

namespace stagecoach {

std::unique_ptr<TaskPool> create_pool_at(const ThreadPlace& place, int thread_count) {
  if (place.binder == nullptr) return TaskPool::create(thread_count);
  // Whether binding works is found by run_at, which all of them would fail alike.
  return create_thread_task_pool(
      thread_count, [place] { static_cast<void>(place.binder->bind_thread(place.cpus)); });
}

Status run_at(const ThreadPlace& place, const std::function<void()>& work) {
  if (place.binder != nullptr) return run_on_cpus(*place.binder, place.cpus, work);
  work();
  return Status::ok();
}

std::string doubt_of(const NodePlacement* memory, const ThreadPlace& place) {
  Status bound = run_at(place, [] {});
  if (!bound.is_ok()) {
    return fmt::format("threads were not bound to their node: {}", bound.message());
  }
  return memory == nullptr ? std::string() : memory->doubt();
}

}  // namespace stagecoach
