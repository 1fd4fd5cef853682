# Tests on NCCL's own host code (tests/nccl_host), which `./dev test --nccl` runs.

# rewire_nccl_host_test(NAME COMMAND command... [ALL] [TIMEOUT s] [PROCESSORS n]): runs the command
# on each build of NCCL's host code, or with ALL once for all of them ({libraries} in the command).
# The test is skipped by name in other runs, without a build, and without CUDA's headers.
function(rewire_nccl_host_test name)
  cmake_parse_arguments(ARG "ALL" "TIMEOUT" "COMMAND" ${ARGN})
  if(REWIRE_SANITIZE)
    return()
  endif()
  if(NOT TARGET nccl_host)
    add_test(NAME nccl_host_${name} COMMAND ${CMAKE_COMMAND} -E echo
             "skipped: CUDA's headers are not installed (CUDA_HOME)")
    set_tests_properties(nccl_host_${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: "
                         LABELS nccl_host)
    return()
  endif()
  set(how each)
  if(ARG_ALL)
    set(how all)
  endif()
  add_test(NAME nccl_host_${name} COMMAND ${Python3_EXECUTABLE}
           ${CMAKE_SOURCE_DIR}/tests/nccl_host/nccl_host.py ${how} --build ${CMAKE_BINARY_DIR} --test
           -- ${ARG_COMMAND})
  set_tests_properties(nccl_host_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT}
                       LABELS nccl_host RUN_SERIAL ON)
endfunction()
