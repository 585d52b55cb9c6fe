#include "tools/bench_outputs.h"

#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <utility>

namespace stagecoach {

Status check_outputs(const BenchOptions& options) {
  const std::pair<const char*, std::string> files[] = {{"--baseline", options.baseline},
                                                       {"--out", options.out_file},
                                                       {"--csv", options.csv_file},
                                                       {"--plot", options.plot},
                                                       {"--save-profile", options.profile_file}};
  std::map<std::string, const char*> known;
  for (const auto& [name, path] : files) {
    if (path.empty() || path == "-") continue;
    std::error_code error;
    std::string place =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path), error).string();
    auto [other, is_new] = known.emplace(error ? path : place, name);
    if (is_new) continue;
    return invalid_argument(
        fmt::format("{} and {} are both '{}'; name a file each", other->second, name, path));
  }
  return Status::ok();
}

}  // namespace stagecoach
