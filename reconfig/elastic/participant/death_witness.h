// A second connection to the agent that ends as soon as this process begins to die. For
// Participant, on the member's thread.
//
// The kernel closes a process's connections after the last thread has ended. A thread of low
// priority, such as a builder of communicators, ends late on a host without an idle processor:
// after seconds when the host is overloaded. The witness is a thread with a file table of its own
// that holds nothing but this connection. A signal that kills the process ends the thread at once,
// and so the connection.
//
// The thread needs close_range(2) with CLOSE_RANGE_UNSHARE (Linux 5.9). Without it there is no
// witness, and the agent learns of the death from the end of the member's connection.
#pragma once

#include <string>
#include <thread>

#include "reconfig/base/socket.h"

namespace rewire::elastic {

class DeathWitness {
 public:
  // Connects to the agent's socket in the background. Start it after the member's connection was
  // made: the agent closes only connections that are older than a witness that ends.
  explicit DeathWitness(std::string path);
  // Ends the connection and joins the thread. The member's connection must be closed before.
  ~DeathWitness();
  DeathWitness(const DeathWitness&) = delete;
  DeathWitness& operator=(const DeathWitness&) = delete;

 private:
  void Run() const;

  const std::string path_;
  const std::string greeting_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace rewire::elastic
