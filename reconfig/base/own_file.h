// Files that hold keys, and files whose names others can guess. A file is opened without following
// a link, and a new file takes the place of its name at once, so that no other user can read it,
// change it, or lead a write elsewhere.
//
// Thread-safe. libc and libstdc++ only.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "reconfig/base/unique_fd.h"

namespace rewire {

struct [[nodiscard]] FileStatus {
  int error = 0;     // a value of errno; EPERM: the owner or the mode is refused
  std::string text;  // "PATH: reason"; empty when ok
  [[nodiscard]] bool ok() const { return error == 0; }
};

// Refuses an open file or folder of another user, and one whose mode has a bit of `forbidden`.
FileStatus CheckOwner(int fd, const std::string& path, mode_t forbidden);

// Refuses the folder of the file `path` when another user owns it or others may write to it: they
// could replace the file.
FileStatus CheckFolderOf(const std::string& path);

// Opens a regular file of this user that nobody else may read or write. With O_CREAT in `flags` the
// file is made, of mode 0600.
FileStatus OpenOwnFile(const std::string& path, int flags, UniqueFd* out);

// Makes an empty file. What has this name, a link also, is removed and not followed.
FileStatus MakeOwnFile(const std::string& path, mode_t mode, UniqueFd* out);

FileStatus WriteWhole(int fd, std::string_view bytes, const std::string& path);

}  // namespace rewire
