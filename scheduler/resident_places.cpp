#include "scheduler/resident_places.h"

namespace stagecoach {

void ResidentPlaces::restart(ByteCount size, Timepoint free) {
  places_.assign(1, {0, size, free});
}

Timepoint ResidentPlaces::free_at(ByteCount offset, ByteCount size) const {
  Timepoint latest;
  for (const Place& place : places_) {
    if (place.offset < offset + size && offset < place.offset + place.size) latest = place.free;
  }
  return latest;
}

void ResidentPlaces::free(ByteCount offset, ByteCount size, Timepoint end) {
  std::erase_if(places_, [&](const Place& place) {
    return offset <= place.offset && place.offset + place.size <= offset + size;
  });
  places_.push_back({offset, size, end});
}

}  // namespace stagecoach
