# Warnings every target is built with; they are errors so that none is ever ignored.
set(STAGECOACH_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-unused-parameter -Wno-missing-field-initializers -Werror)
