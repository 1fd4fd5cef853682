#include "tests/process/participant/flood.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "reconfig/base/unique_fd.h"

namespace rewire {
namespace {

// Connections open at a time: more than a listener keeps.
constexpr size_t kOpen = 256;

std::set<std::string> SocketsOf(pid_t process) {
  std::set<std::string> inodes;
  std::error_code gone;
  const std::filesystem::path folder = "/proc/" + std::to_string(process) + "/fd";
  for (const auto& fd : std::filesystem::directory_iterator(folder, gone)) {
    const std::string target = std::filesystem::read_symlink(fd.path(), gone).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

}  // namespace

Flood::Flood(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) {
    const std::set<std::string> inodes = SocketsOf(process);
    std::ifstream in("/proc/" + std::to_string(process) + "/net/tcp");
    std::string line;
    std::getline(in, line);  // column titles
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (state != "0A" || inodes.count(inode) == 0) continue;  // 0A: a listening socket
      ports_.push_back(
          static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  thread_ = std::thread([this] { Run(); });
}

Flood::~Flood() {
  stop_ = true;
  thread_.join();
}

void Flood::Run() {
  pthread_setname_np(pthread_self(), "test-flood");
  const std::string said[] = {"", "RWG2", std::string(72, 'x')};
  std::vector<UniqueFd> open(kOpen);
  for (size_t i = 0; !stop_ && !ports_.empty(); ++i) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(ports_[i % ports_.size()]);
    // A connection that fails is part of the flood.
    (void)connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    const std::string& bytes = said[i % 3];
    if (!bytes.empty()) send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    open[i % kOpen] = std::move(fd);
    ++connections_;
    if (i % 64 == 0) poll(nullptr, 0, 1);  // an attacker does not have all processors
  }
}

}  // namespace rewire
