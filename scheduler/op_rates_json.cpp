#include "scheduler/op_rates_json.h"

#include <fmt/format.h>
#include <utility>

#include "core/dtype.h"
#include "core/suggest.h"
#include "scheduler/json_fields.h"

namespace stagecoach {

namespace {

constexpr double kNsPerUs = 1e3;
constexpr double kMostWork = 1e18, kMostUs = 1e9;
constexpr int64_t kMostSize = int64_t{1} << 50;
constexpr size_t kMostSizes = 8;

Result<OpKind> parse_op_kind(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    names.emplace_back(op_kind_name(static_cast<OpKind>(kind)));
    if (names.back() == name) return static_cast<OpKind>(kind);
  }
  std::string nearest = nearest_name(name, names);
  return invalid_argument(
      fmt::format("{}: op is '{}'; no operation is called so{}", where, name,
                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

Result<std::vector<int64_t>> read_sizes(const JsonFields& fields, const std::string& where) {
  STAGECOACH_ASSIGN_OR_RETURN(Json::Array list, fields.list("sizes"));
  std::vector<int64_t> sizes;
  for (const Json& one : list) {
    bool is_size = one.is_integer() && one.as_integer() >= 0 && one.as_integer() <= kMostSize;
    if (!is_size || sizes.size() == kMostSizes) {
      return invalid_argument(fmt::format(
          "{}: sizes holds {}; it must be a list of at most {} whole numbers from 0 to 2^50", where,
          one.dump(), kMostSizes));
    }
    sizes.push_back(one.as_integer());
  }
  return sizes;
}

Result<TimedOp> read_timed_op(const Json& json, const std::string& where) {
  JsonFields fields(json, where, {"op", "dtype", "layout", "sizes", "work", "us"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  TimedOp op;
  STAGECOACH_ASSIGN_OR_RETURN(std::string name, fields.text("op", ""));
  STAGECOACH_ASSIGN_OR_RETURN(op.shape.kind, parse_op_kind(name, where));
  STAGECOACH_ASSIGN_OR_RETURN(std::string dtype, fields.text("dtype", "bf16"));
  Result<DType> parsed = parse_compute_dtype(dtype);
  if (!parsed.is_ok()) return parsed.status().with_context(where);
  op.shape.dtype = *parsed;
  STAGECOACH_ASSIGN_OR_RETURN(op.shape.layout, fields.text("layout", ""));
  STAGECOACH_ASSIGN_OR_RETURN(op.shape.sizes, read_sizes(fields, where));
  STAGECOACH_ASSIGN_OR_RETURN(op.shape.work, fields.number("work", 1, kMostWork));
  STAGECOACH_ASSIGN_OR_RETURN(double us, fields.number("us", 1e-6, kMostUs));
  op.time_ns = us * kNsPerUs;
  return op;
}

}  // namespace

Json to_json(std::span<const TimedOp> ops) {
  Json list = Json::array();
  for (const TimedOp& op : ops) {
    Json json = Json::object();
    json["op"] = op_kind_name(op.shape.kind);
    json["dtype"] = dtype_name(op.shape.dtype);
    if (!op.shape.layout.empty()) json["layout"] = op.shape.layout;
    json["sizes"] = Json::array();
    for (int64_t size : op.shape.sizes) json["sizes"].push_back(size);
    json["work"] = op.shape.work;
    json["us"] = op.time_ns / kNsPerUs;
    list.push_back(std::move(json));
  }
  return list;
}

Result<std::vector<TimedOp>> read_timed_ops(const Json& json, const std::string& where) {
  if (!json.is_array()) {
    return invalid_argument(
        fmt::format("{}: ops is {}; it must be a list", where, json.type_name()));
  }
  std::vector<TimedOp> ops;
  for (const Json& one : json.items()) {
    STAGECOACH_ASSIGN_OR_RETURN(TimedOp op,
                                read_timed_op(one, fmt::format("{}: op {}", where, ops.size())));
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace stagecoach
