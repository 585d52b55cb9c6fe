#include "train/metrics.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/file.h"

namespace stagecoach {

namespace {

constexpr std::string_view kRunAgain =
    "and run the same command again, which goes on from the last checkpoint";

Status failure(std::string_view action, const std::string& path, int error) {
  return io_error(
      fmt::format("cannot {} '{}': {}", action, path, std::generic_category().message(error)));
}

/// What a run goes on from.
struct KeptLines {
  std::string text;
  int64_t last_validation_iteration = 0;
};

/// The lines of a file that belong to iterations up to `last_iteration`. What does not parse is the
/// rest of a crash and goes.
KeptLines kept_lines(std::string_view text, int64_t last_iteration) {
  KeptLines kept;
  while (!text.empty()) {
    size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    Result<Json> record = Json::parse(line);
    if (!record.is_ok()) continue;
    const Json* iteration = record->find("iteration");
    bool belongs = iteration != nullptr && iteration->is_integer() &&
                   iteration->as_integer() <= last_iteration;
    if (!belongs) continue;
    kept.text.append(line).push_back('\n');
    if (record->find("validation_loss") != nullptr) {
      kept.last_validation_iteration = iteration->as_integer();
    }
  }
  return kept;
}

}  // namespace

Json iteration_metrics_to_json(const IterationMetrics& metrics) {
  Json json = Json::object();
  json["iteration"] = metrics.iteration;
  json["loss"] = metrics.loss;
  json["tokens"] = metrics.tokens;
  json["tokens_per_s"] = metrics.tokens_per_s;
  json["grad_norm"] = metrics.grad_norm;
  json["lr"] = metrics.lr;
  json["bubble"] = metrics.bubble;
  if (metrics.router_loss) json["router_loss"] = *metrics.router_loss;
  if (metrics.loss_scale) {
    json["loss_scale"] = *metrics.loss_scale;
    json["skipped"] = metrics.skipped;
  }
  return json;
}

Json validation_metrics_to_json(int64_t iteration, double validation_loss) {
  Json json = Json::object();
  json["iteration"] = iteration;
  json["validation_loss"] = validation_loss;
  return json;
}

Result<MetricsWriter> MetricsWriter::open(const std::string& path, int64_t last_iteration) {
  KeptLines kept;
  std::error_code ignored;
  if (last_iteration > 0 && std::filesystem::exists(path, ignored)) {
    STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
    kept = kept_lines(text, last_iteration);
  }
  if (Status status = write_file_atomically(path, kept.text); !status.is_ok()) {
    return io_error(status.message());
  }
  int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) return failure("open", path, errno);
  return MetricsWriter(descriptor, path, kept.last_validation_iteration);
}

MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      last_validation_iteration_(other.last_validation_iteration_) {}

MetricsWriter& MetricsWriter::operator=(MetricsWriter&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(last_validation_iteration_, other.last_validation_iteration_);
  return *this;
}

MetricsWriter::~MetricsWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

/// Lines in a file that nobody finds are lost: whoever took it away is told at once.
Status MetricsWriter::check_place() const {
  struct stat ours = {}, there = {};
  if (::fstat(descriptor_, &ours) != 0) return failure("append to", path_, errno);
  bool is_there = ::stat(path_.c_str(), &there) == 0;
  if (is_there && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return Status::ok();
  return io_error(fmt::format("'{}' was {} while the run wrote to it: leave it where it is, {}",
                              path_, is_there ? "replaced by another file" : "moved or removed",
                              kRunAgain));
}

Status MetricsWriter::write(const Json& record) {
  STAGECOACH_RETURN_IF_ERROR(check_place());
  std::string line = record.dump() + "\n";
  off_t end = ::lseek(descriptor_, 0, SEEK_END);
  ssize_t written = 0;
  do {
    written = ::write(descriptor_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return Status::ok();
  int error = written < 0 ? errno : ENOSPC;
  // Lines are whole or not there; what cannot be cut off goes when the run is resumed.
  if (written > 0) static_cast<void>(::ftruncate(descriptor_, end) == 0);
  bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return io_error(fmt::format("{}; {}, {}", failure("append to", path_, error).message(),
                              is_full ? "make room there" : "make it writable", kRunAgain));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stagecoach
