#include "tools/bandwidth/profile_csv.h"

#include <fmt/format.h>
#include <utility>

namespace stagecoach {

namespace {

/// As RFC 4180 quotes it, where it must.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// The unit that the end of a name says.
std::string unit_of(const std::string& name) {
  for (const auto& [end, unit] : {std::pair{"_bytes_per_s", "B/s"},
                                  {"flop_per_s", "FLOP/s"},
                                  {"_bytes", "B"},
                                  {".us", "us"},
                                  {"_s", "s"}}) {
    if (name.ends_with(end)) return unit;
  }
  return "";
}

/// Rows of all figures and texts of an object; tables inside of it have their name before theirs.
void add_rows(const Json& object, const std::string& entry, const std::string& subject,
              const std::string& prefix, std::string& text) {
  for (const auto& [name, value] : object.members()) {
    if (value.is_object()) {
      add_rows(value, entry, subject, prefix + name + ".", text);
      continue;
    }
    if (value.is_array()) continue;
    text += fmt::format("{},{},{},{},{}\n", field(entry), field(subject), field(prefix + name),
                        unit_of(name), field(value.is_string() ? value.as_string() : value.dump()));
  }
}

std::string card_name(const MachineProfile& profile, int index) {
  const std::string& device = profile.cards[index].device;
  return device.empty() ? fmt::format("{}", index) : device;
}

std::string members_of(const MachineProfile& profile, int uplink) {
  std::string members;
  for (int card = 0; card < std::ssize(profile.cards); ++card) {
    if (profile.cards[card].uplink != uplink) continue;
    members += (members.empty() ? "" : " ") + card_name(profile, card);
  }
  return members;
}

/// Rows of each of a list; `subject` says of what.
template <typename Subject>
void add_list(const Json& json, const char* name, Subject subject, std::string& text) {
  const Json* list = json.find(name);
  if (list == nullptr) return;
  for (int index = 0; index < std::ssize(list->items()); ++index) {
    add_rows(list->items()[index], fmt::format("{}[{}]", name, index), subject(index), "", text);
  }
}

/// "matmul bf16 nt 4096x4096x4096": what tells an operation from the others.
std::string op_name(const Json& op) {
  std::string name = op.find("op")->as_string();
  for (const char* part : {"dtype", "layout"}) {
    const Json* value = op.find(part);
    if (value != nullptr && value->is_string()) name += " " + value->as_string();
  }
  const Json* sizes = op.find("sizes");
  if (sizes == nullptr) return name;
  for (size_t index = 0; index < sizes->items().size(); ++index) {
    name += (index == 0 ? " " : "x") + sizes->items()[index].dump();
  }
  return name;
}

/// A row an operation, with its time.
void add_ops(const Json& json, std::string& text) {
  const Json* list = json.find("ops");
  if (list == nullptr) return;
  for (size_t index = 0; index < list->items().size(); ++index) {
    const Json& card = list->items()[index];
    for (const Json& op : card.find("ops")->items()) {
      std::string quantity = op_name(op) + ".us";
      text += fmt::format("ops[{}],{},{},{},{}\n", index, field(card.find("card")->as_string()),
                          field(quantity), unit_of(quantity), op.find("us")->dump());
    }
  }
}

}  // namespace

std::string profile_csv(const MachineProfile& profile) {
  std::string text = "entry,subject,quantity,unit,value\n";
  Json json = to_json(profile);
  Json top = Json::object();
  for (const char* name : {"schema_version", "name", "copy_latency_s"})
    top[name] = *json.find(name);
  add_rows(top, "profile", "", "", text);
  if (const Json* measurement = json.find("measurement")) {
    add_rows(*measurement, "measurement", "", "", text);
  }
  add_list(
      json, "cards", [&](int index) { return card_name(profile, index); }, text);
  add_list(
      json, "uplinks", [&](int index) { return members_of(profile, index); }, text);
  add_list(
      json, "peers",
      [&](int index) {
        const MachinePeer& peer = profile.peers[index];
        return card_name(profile, peer.source) + " " + card_name(profile, peer.target);
      },
      text);
  add_ops(json, text);
  add_rows(*json.find("host"), "host", "", "", text);
  for (const std::string& note : profile.notes) {
    text += fmt::format("note,,text,,{}\n", field(note));
  }
  return text;
}

}  // namespace stagecoach
