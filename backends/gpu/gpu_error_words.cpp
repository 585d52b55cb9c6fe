#include "backends/gpu/gpu_error_words.h"

#include <atomic>
#include <fmt/format.h>

namespace stagecoach {

void GpuErrorWords::detach() {
  std::lock_guard lock(mutex_);
  words_ = nullptr;
  pending_.clear();
}

uint64_t* GpuErrorWords::take(uint64_t sequence, std::string_view verb, const Label& label) {
  std::lock_guard lock(mutex_);
  if (words_ == nullptr) return nullptr;
  if (pending_.size() == kCount) return pending_[kCount - 1].word;
  uint64_t* word = words_ + next_++ % kCount;
  std::atomic_ref(*word).store(kNone, std::memory_order_release);
  pending_.push_back({word, sequence, verb, label});
  return word;
}

Status GpuErrorWords::check(uint64_t sequence, const FailureSite& stream) {
  std::lock_guard lock(mutex_);
  while (!pending_.empty() && pending_.front().sequence <= sequence) {
    Pending done = pending_.pop_front();
    uint64_t row = std::atomic_ref(*done.word).load(std::memory_order_acquire);
    if (row == kNone || !first_.is_ok()) continue;
    FailureSite site = stream;
    site.verb = std::string(done.verb);
    site.label = std::string(done.label.view());
    site.sequence = done.sequence;
    first_ =
        data_loss(
            fmt::format("row {} holds an id or label outside the vocabulary, or a document start "
                        "that is neither its own position nor the row before's",
                        row))
            .with_site(site);
  }
  // Remembered, so that no later mark counts as passed, whoever asks for it first.
  if (first_.is_ok() || sequence < first_.site().sequence) return Status::ok();
  return first_;
}

}  // namespace stagecoach
