// An attacker without a key: a thread that repeatedly connects to every listening TCP port of some
// processes, and sends nothing, half a hello, or malformed data.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace rewire {

class Flood {
 public:
  // The constructor looks up the ports of these processes once.
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
