#include "tools/bandwidth/output_file.h"

#include <fmt/format.h>
#include <string_view>

namespace stagecoach {

Status output_failure(const std::string& option, const std::string& path, const Status& status) {
  if (status.is_ok()) return status;
  // The system's reason alone: the file that it is about has a name of its own while it is written.
  std::string_view reason = status.message();
  size_t last = reason.rfind("': ");
  if (last != std::string_view::npos) reason.remove_prefix(last + 3);
  return io_error(
      fmt::format("{} '{}' cannot be written: {}; name another file", option, path, reason));
}

}  // namespace stagecoach
