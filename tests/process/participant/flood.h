// An attacker without a key: a thread that connects to every TCP port on which some processes
// listen, again and again, and says nothing, half a hello, or garbage.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace rewire {

class Flood {
 public:
  // The ports of these processes are looked up here, once.
  explicit Flood(const std::vector<pid_t>& processes);
  ~Flood();  // joins the thread; its connections end

  [[nodiscard]] size_t ports() const { return ports_.size(); }
  [[nodiscard]] uint64_t connections() const { return connections_.load(); }

 private:
  void Run();

  std::vector<uint16_t> ports_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> connections_{0};
  std::thread thread_;
};

}  // namespace rewire
