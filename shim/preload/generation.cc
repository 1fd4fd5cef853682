// A generation's RealValues. See generation.h.
#include "shim/preload/generation.h"

#include <bit>
#include <cstddef>
#include <new>

namespace rewire::shim {

namespace {

// Element i lies in chunk c at offset i - kFirst * (2^c - 1).
struct Place {
  uint32_t chunk;
  uint32_t offset;
};
Place PlaceOf(uint32_t index, uint32_t first) {
  const uint32_t scaled = index / first + 1;
  const auto chunk = static_cast<uint32_t>(std::bit_width(scaled)) - 1;
  return {chunk, index - first * (std::bit_floor(scaled) - 1)};
}

}  // namespace

RealValues::~RealValues() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

std::optional<uint64_t> RealValues::Get(uint32_t index) const {
  const Place place = PlaceOf(index, kFirst);
  if (place.chunk >= kChunks) return std::nullopt;
  const Element* chunk = chunks_[place.chunk].load(std::memory_order_acquire);
  if (chunk == nullptr || !chunk[place.offset].set.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  return __atomic_load_n(&chunk[place.offset].value, __ATOMIC_ACQUIRE);
}

RealValues::Element* RealValues::Make(uint32_t index) {
  const Place place = PlaceOf(index, kFirst);
  if (place.chunk >= kChunks) return nullptr;
  Element* chunk = chunks_[place.chunk].load(std::memory_order_acquire);
  if (chunk == nullptr) {
    auto* fresh = new (std::nothrow) Element[size_t{kFirst} << place.chunk];
    if (fresh == nullptr) return nullptr;
    if (chunks_[place.chunk].compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel)) {
      chunk = fresh;
    } else {
      delete[] fresh;
    }
  }
  return &chunk[place.offset];
}

bool RealValues::Set(uint32_t index, uint64_t value) {
  Element* element = Make(index);
  if (element == nullptr) return false;
  __atomic_store_n(&element->value, value, __ATOMIC_RELAXED);
  element->set.store(true, std::memory_order_release);
  return true;
}

uint64_t* RealValues::Reserve(uint32_t index) {
  return Set(index, 0) ? &Make(index)->value : nullptr;
}

}  // namespace rewire::shim
