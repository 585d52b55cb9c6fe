#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace stagecoach {

/// What the caller calls an operation, carried by value so that queues never allocate for it.
/// Longer names are cut at the front, because the end ("…attention.backward") tells most.
class Label {
 public:
  static constexpr size_t kCapacity = 55;

  Label() = default;
  Label(std::string_view text) {
    if (text.size() > kCapacity) text.remove_prefix(text.size() - kCapacity);
    size_ = static_cast<unsigned char>(text.size());
    std::memcpy(text_, text.data(), text.size());
  }
  Label(const char* text) : Label(std::string_view(text)) {}
  Label(const std::string& text) : Label(std::string_view(text)) {}

  std::string_view view() const { return {text_, size_}; }

 private:
  char text_[kCapacity] = {};
  unsigned char size_ = 0;
};

}  // namespace stagecoach
