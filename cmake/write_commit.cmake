# Writes OUTPUT, a header with the commit that SOURCE is at, and leaves it alone where it says so already, so that nothing is built for nothing.
# Without a repository of its own (a tarball) it is the folder's name.
get_filename_component(commit "${SOURCE}" NAME)
if(GIT AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=7 --exclude=* --dirty
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit "${found}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define ASSAY_COMMIT \"${commit}\"\n")
