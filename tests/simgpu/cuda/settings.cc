#include "tests/simgpu/cuda/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace simgpu {
namespace {

struct Row {
  std::string_view name;
  long min;
  long max;
  long* value;
};

std::string ReadOne(std::string_view name, std::string_view text, const Row* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (name != rows[i].name) continue;
    long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < rows[i].min ||
        value > rows[i].max) {
      return std::string(name) + "=" + std::string(text) + " is not a whole number in " +
             std::to_string(rows[i].min) + ".." + std::to_string(rows[i].max);
    }
    *rows[i].value = value;
    return {};
  }
  return std::string(name) + " is not a setting of the simulated driver";
}

}  // namespace

std::string ReadSettings(char** environment, Settings* settings) {
  long devices = 8, memory_mb = 4096, kernel_slots = 0, alloc_sync = 0;
  long peer_mbps = 0, local_mbps = 0;
  const Row rows[] = {{"SIMGPU_DEVICES", 1, 64, &devices},
                      {"SIMGPU_MEMORY_MB", 1, 1048576, &memory_mb},
                      {"SIMGPU_KERNEL_SLOTS", 0, 1024, &kernel_slots},
                      {"SIMGPU_ALLOC_SYNC", 0, 1, &alloc_sync},
                      {"SIMGPU_PEER_MBPS", 0, 1000000000, &peer_mbps},
                      {"SIMGPU_LOCAL_MBPS", 0, 1000000000, &local_mbps}};
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("SIMGPU_") || equals == std::string_view::npos) continue;
    std::string error =
        ReadOne(text.substr(0, equals), text.substr(equals + 1), rows, std::size(rows));
    if (!error.empty()) return error;
  }
  settings->devices = static_cast<int>(devices);
  settings->memory_bytes = static_cast<size_t>(memory_mb) << 20;
  settings->kernel_slots = static_cast<int>(kernel_slots);
  settings->alloc_sync = alloc_sync != 0;
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  settings->one_queue = connections != nullptr && std::string_view(connections) == "1";
  settings->peer_mbps = static_cast<uint64_t>(peer_mbps);
  settings->local_mbps = static_cast<uint64_t>(local_mbps);
  return {};
}

}  // namespace simgpu
