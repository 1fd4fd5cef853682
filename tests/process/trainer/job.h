// A training job of several gpt_train processes on the simulated GPU, run to its end. Owned by one
// thread.
#pragma once

#include <string>
#include <vector>

namespace rewire::trainer {

struct JobResult {
  std::vector<int> statuses;  // exit status per rank; -1: had to be killed
  std::string output;         // of all ranks, standard output and error

  [[nodiscard]] bool ok() const;
  // Returns the line "final step ...", or the whole output if there is no such line.
  [[nodiscard]] std::string Final() const;
};

// Its own temporary folder, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Runs `world` ranks with the given arguments; kills them after a minute.
JobResult RunJob(int world, const std::vector<std::string>& arguments);

}  // namespace rewire::trainer
