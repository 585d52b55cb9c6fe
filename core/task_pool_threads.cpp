#include "core/thread_task_pool.h"

namespace stagecoach {

std::unique_ptr<TaskPool> TaskPool::create(int thread_count) {
  return create_thread_task_pool(thread_count, nullptr);
}

}  // namespace stagecoach
