#include "tools/bandwidth/profile_file.h"

#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "core/file.h"

namespace stagecoach {

namespace {

constexpr ByteCount kMostProfileBytes = kMiB;  ///< 64 cards, all their pairs and operations

/// Resource exhausted is memory that does not suffice; a disk that is full is not.
Status as_io(const Status& status, const std::string& path) {
  if (status.is_ok()) return status;
  return io_error(fmt::format("no machine profile can be written to '{}': {}; name another file",
                              path, status.message()));
}

Status check_not_another(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Status::ok();
  if (std::filesystem::is_regular_file(path, error) && std::filesystem::is_empty(path, error)) {
    return Status::ok();
  }
  Result<MachineProfile> known = read_machine_profile(path);
  if (known.is_ok()) return Status::ok();
  return invalid_argument(
      fmt::format("'{}' exists and is no machine profile ({}); a profile replaces only a profile: "
                  "name another file, or delete this one",
                  path, known.status().message()));
}

std::filesystem::path folder_of(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

/// Writes and deletes as much as a profile may take, in the folder or the nearest above that is
/// there.
Status try_room(const std::string& path) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::weakly_canonical(path, error);
  std::filesystem::path folder = folder_of(error ? path : place.string());
  while (!std::filesystem::exists(folder, error) && folder.has_parent_path()) {
    folder = folder.parent_path();
  }
  std::string probe = (folder / fmt::format(".profile.{}.0.tmp", ::getpid())).string();
  auto write = [&]() -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::create(probe));
    std::string content(static_cast<size_t>(kMostProfileBytes), ' ');
    STAGECOACH_RETURN_IF_ERROR(writer.write(content.data(), kMostProfileBytes));
    return writer.finish();
  };
  Status status = write();
  ::unlink(probe.c_str());
  return status;
}

}  // namespace

Status check_profile_target(const std::string& path) {
  STAGECOACH_RETURN_IF_ERROR(check_not_another(path));
  return as_io(try_room(path), path);
}

Status write_machine_profile(const std::string& path, const MachineProfile& profile) {
  STAGECOACH_RETURN_IF_ERROR(as_io(make_folders(folder_of(path).string()), path));
  return as_io(write_file_atomically(path, to_json(profile).dump(true) + "\n"), path);
}

}  // namespace stagecoach
