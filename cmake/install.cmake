# What `cmake --install` writes: a tree that finds its own parts wherever it is moved to.
#
#   bin/rewire, bin/gpt_train    the command; with lib/rewire/simgpu, a program to try the tree with
#   include/rewire/c_api.h
#   lib/rewire/libnccl.so.2      the preloaded file, also as librewire-preload.so; needs libc alone
#   lib/rewire/librewire.so      the core and the C API
#   lib/rewire/libnccl-net-rewire.so  what NCCL opens for NCCL_NET_PLUGIN=rewire; needs libc alone
#   lib/rewire/librewire-net.so  the net plugin's core
#   lib/rewire/private           what librewire.so and the programs need of Debian's libraries
#   lib/rewire/runtime           the C++ runtime of the programs in bin
#   lib/rewire/simgpu            the simulated GPU
#
# lib/rewire is on the library path of every member, so nothing lies there that somebody else's program
# could take for a library of its system's. For the same reason librewire.so uses the C++ runtime that
# the training process has: were ours found first, what is loaded later and needs a newer one could not
# be. Debian's Abseil is no such danger: its functions are in a namespace of Debian's own. (Its static
# libraries cannot be part of a shared one; they are built for programs.)
#
# Found by DT_RPATH, which unlike DT_RUNPATH holds for what the libraries need of one another, and comes
# before LD_LIBRARY_PATH.
set(private "$ORIGIN/../lib/rewire/private")
set(runtime "$ORIGIN/../lib/rewire/runtime")
set_target_properties(rewire gpt_train PROPERTIES INSTALL_RPATH "${private};${runtime}")
set_target_properties(rewire_shared rewire_net PROPERTIES INSTALL_RPATH "$ORIGIN/private")
set_target_properties(simgpu_nccl PROPERTIES INSTALL_RPATH "$ORIGIN")
# The same in the build tree, where these folders are not.
set_target_properties(rewire gpt_train rewire_shared rewire_net simgpu_nccl PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
foreach(name rewire gpt_train rewire_shared rewire_net)
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS rewire gpt_train RUNTIME_DEPENDENCY_SET rewire_needs RUNTIME DESTINATION bin)
install(TARGETS rewire_shared rewire_net RUNTIME_DEPENDENCY_SET rewire_needs
  LIBRARY DESTINATION lib/rewire)
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|nccl)\\.so"
  LIBRARY DESTINATION lib/rewire/private)
install(RUNTIME_DEPENDENCY_SET rewire_needs
  PRE_INCLUDE_REGEXES "^lib(stdc\\+\\+|gcc_s)\\.so" PRE_EXCLUDE_REGEXES ".*"
  LIBRARY DESTINATION lib/rewire/runtime)

install(TARGETS rewire_preload LIBRARY DESTINATION lib/rewire NAMELINK_SKIP)
install(TARGETS rewire_net_plugin LIBRARY DESTINATION lib/rewire)
install(CODE "file(CREATE_LINK libnccl.so.2
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/rewire/librewire-preload.so\" SYMBOLIC)")
install(TARGETS simgpu_cuda simgpu_nccl LIBRARY DESTINATION lib/rewire/simgpu)
install(FILES reconfig/c_api.h DESTINATION include/rewire)
install(DIRECTORY reconfig/python/rewire DESTINATION share/rewire/python FILES_MATCHING PATTERN "*.py")
