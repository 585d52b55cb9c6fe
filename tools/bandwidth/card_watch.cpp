#include "tools/bandwidth/card_watch.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace stagecoach {

namespace {

bool is_card(const DeviceInfo& device) {
  return !device.uuid.empty() || !device.pci_address.empty();
}

/// How much a counter went up; unknown where one reading is missing, nothing where it began anew.
Json risen(const std::optional<int64_t>& first, const std::optional<int64_t>& last) {
  if (!first.has_value() || !last.has_value()) return {};
  return std::max<int64_t>(0, *last - *first);
}

/// The larger or the sum of two numbers, of which null is none.
Json joined(const Json* one, const Json* other, bool adds) {
  bool has_one = one != nullptr && one->is_number();
  bool has_other = other != nullptr && other->is_number();
  if (!has_one || !has_other) return has_one ? *one : has_other ? *other : Json();
  if (one->is_integer() && other->is_integer()) {
    int64_t a = one->as_integer(), b = other->as_integer();
    return adds ? a + b : std::max(a, b);
  }
  double a = one->as_number(), b = other->as_number();
  return adds ? a + b : std::max(a, b);
}

Json joined_texts(const Json* one, const Json* other) {
  std::set<std::string> texts;
  for (const Json* list : {one, other}) {
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& text : list->items()) texts.insert(text.as_string());
  }
  Json json = Json::array();
  for (const std::string& text : texts) json.push_back(text);
  return json;
}

/// What was seen during the run of the device `id` of a context; null where nothing was.
const Json* seen_of(const Json& context, const std::string& id) {
  const Json* devices = context.find("devices");
  if (devices == nullptr || !devices->is_array()) return nullptr;
  for (const Json& device : devices->items()) {
    const Json* name = device.find("id");
    const Json* card = device.find("card");
    bool is_it = name != nullptr && name->is_string() && name->as_string() == id;
    if (is_it) return card != nullptr ? card->find("during") : nullptr;
  }
  return nullptr;
}

}  // namespace

int64_t count_other_processes(const std::vector<CardProcess>& processes) {
  auto count = static_cast<int64_t>(processes.size());
  return std::max<int64_t>(0, count - 1);
}

Result<CardWatch> CardWatch::start(const std::vector<DeviceInfo>& devices) {
  CardManagement management;
  if (std::any_of(devices.begin(), devices.end(), is_card)) {
    STAGECOACH_ASSIGN_OR_RETURN(management, CardManagement::open());
  }
  return CardWatch(std::move(management), devices);
}

CardWatch::CardWatch(CardManagement management, const std::vector<DeviceInfo>& devices)
    : management_(std::move(management)), start_ns_(RealClock::instance().now_ns()) {
  for (const DeviceInfo& device : devices) cards_.push_back({device, {}, {}, {}, 0});
  look();
}

void CardWatch::look() {
  for (Watched& card : cards_) {
    std::optional<CardState> now = management_.read(card.device);
    if (!now.has_value()) continue;
    if (!card.first.has_value()) card.first = now;
    // Idle links go slower and narrower; the fastest that was seen counts.
    if (card.last.has_value()) {
      now->pcie_generation = std::max(now->pcie_generation, card.last->pcie_generation);
      now->pcie_width = std::max(now->pcie_width, card.last->pcie_width);
    }
    if (now->throttle_reasons.has_value()) {
      card.reasons.insert(now->throttle_reasons->begin(), now->throttle_reasons->end());
    }
    if (now->processes.has_value()) {
      card.other_processes = std::max(card.other_processes, count_other_processes(*now->processes));
    }
    card.last = std::move(now);
  }
  last_ns_ = RealClock::instance().now_ns();
}

std::optional<CardState> CardWatch::last(const std::string& id) const {
  for (const Watched& card : cards_) {
    if (card.device.id == id) return card.last;
  }
  return std::nullopt;
}

void CardWatch::describe(Json& context) const {
  const Json* described = context.find("devices");
  if (described == nullptr) return;
  Json devices = Json::array();
  for (Json device : described->items()) {
    const std::string id = device["id"].as_string();
    device["card"] = Json();
    for (const Watched& card : cards_) {
      if (card.device.id != id || !card.last.has_value()) continue;
      Json state = card_state_json(*card.last);
      Json during = Json::object();
      constexpr int64_t kNsPerMs = 1'000'000;
      during["elapsed_ms"] = (last_ns_ - start_ns_) / kNsPerMs;
      during["replays"] = risen(card.first->replays, card.last->replays);
      Json throttled = risen(card.first->throttled_ns, card.last->throttled_ns);
      during["throttled_ms"] =
          throttled.is_integer() ? Json(throttled.as_integer() / kNsPerMs) : Json();
      during["throttle_reasons"] = Json::array();
      for (const std::string& reason : card.reasons) during["throttle_reasons"].push_back(reason);
      during["other_processes"] =
          card.last->processes.has_value() ? Json(card.other_processes) : Json();
      during["busy_percent_before"] =
          card.first->busy_percent.has_value() ? Json(*card.first->busy_percent) : Json();
      state["during"] = std::move(during);
      device["card"] = std::move(state);
    }
    devices.push_back(std::move(device));
  }
  context["devices"] = std::move(devices);
  context["management_absent"] = Json::array();
  for (const std::string& reason : management_.absent()) {
    context["management_absent"].push_back(reason);
  }
}

void join_card_context(const Json& earlier, Json& context) {
  const Json* described = context.find("devices");
  if (described == nullptr || !described->is_array()) return;
  Json devices = Json::array();
  for (Json device : described->items()) {
    const Json* before = seen_of(earlier, device["id"].as_string());
    Json& card = device["card"];
    if (before != nullptr && card.is_object()) {
      Json& during = card["during"];
      for (const char* sum : {"elapsed_ms", "replays", "throttled_ms"}) {
        during[sum] = joined(before->find(sum), during.find(sum), true);
      }
      for (const char* most : {"other_processes", "busy_percent_before"}) {
        during[most] = joined(before->find(most), during.find(most), false);
      }
      during["throttle_reasons"] =
          joined_texts(before->find("throttle_reasons"), during.find("throttle_reasons"));
    }
    devices.push_back(std::move(device));
  }
  context["devices"] = std::move(devices);
}

}  // namespace stagecoach
