# The commands that one types all day. Everything else is in .ci/run.
.PHONY: build test race lint fuzz docs demo bench ci release

build: ## the program, as ./turnpike
	CGO_ENABLED=0 go build -trimpath -o turnpike ./cmd/turnpike

test: ## what everybody runs
	go test ./...

race: ## the README's full test command
	go test -race -shuffle=on -timeout 45m ./...

lint: ## golangci-lint, as tools/go.mod pins it
	go build -C tools -o ../coverage/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	./coverage/golangci-lint run

fuzz: ## look for new inputs, a minute for each target
	bash .ci/fuzz 60s

docs: ## write the generated part of the documentation again
	go test ./docs -run Configuration -update

demo: ## the first minute
	go run ./cmd/turnpike demo

bench: ## the performance table
	go run ./bench

ci: ## all of it
	bash .ci/run

release: ## the archives of a release, in dist: make release VERSION=v1.2.3
	go run ./internal/release $(VERSION)
