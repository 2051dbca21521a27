package evidence

import "strings"

// Bounds are the settings that bound what a well-known program does at once, as its manual names them. Each is empty
// where the program has no such setting.
type Bounds struct {
	Serves string // how many requests or clients it serves
	Asks   string // how many connections it has to one that it asks
}

// BoundsOf gives the settings of a program by the name of its process, of which a version at the end does not matter.
func BoundsOf(program string) Bounds {
	switch strings.TrimRight(program, "0123456789.") {
	case "haproxy": // configuration.txt, 3.2, 4.2 and 5.2
		return Bounds{Serves: "maxconn of global and of the frontend", Asks: "maxconn of the server line"}
	case "pgbouncer": // https://www.pgbouncer.org/config.html
		return Bounds{Serves: "max_client_conn", Asks: "default_pool_size (and pool_size of the database)"}
	case "pgpool": // https://www.pgpool.net/docs/latest/en/html/runtime-config-connection.html
		return Bounds{Serves: "num_init_children", Asks: "num_init_children"}
	case "nginx": // ngx_http_upstream_module, ngx_core_module
		return Bounds{
			Serves: "worker_connections (of each worker, with those to upstreams)",
			Asks:   "max_conns of the upstream's server line",
		}
	case "envoy": // config.cluster.v3.CircuitBreakers
		return Bounds{Asks: "max_connections of the cluster's circuit breakers"}
	case "varnishd", "cache-main": // varnishd(1), vcl-backend(7)
		return Bounds{Serves: "thread_pool_max", Asks: ".max_connections of the backend"}
	case "apache", "httpd": // mod_mpm, mod_proxy
		return Bounds{Serves: "MaxRequestWorkers (with ServerLimit)", Asks: "max= of ProxyPass"}
	case "php-fpm": // https://www.php.net/manual/en/install.fpm.configuration.php
		return Bounds{Serves: "pm.max_children"}
	case "gunicorn": // https://docs.gunicorn.org/en/stable/settings.html
		return Bounds{Serves: "workers and threads"}
	case "uwsgi": // https://uwsgi-docs.readthedocs.io/en/latest/Options.html
		return Bounds{Serves: "processes and threads"}
	case "mariadbd": // https://mariadb.com/kb/en/thread-pool-system-status-variables/
		return Bounds{Serves: "thread_pool_max_threads (with thread_handling=pool-of-threads) and max_connections"}
	case "mysqld":
		return Bounds{Serves: "max_connections"}
	case "postgres": // https://www.postgresql.org/docs/current/runtime-config-connection.html
		return Bounds{Serves: "max_connections, or a pooler in front (pgbouncer)"}
	case "redis-server", "valkey-server": // redis.conf
		return Bounds{Serves: "maxclients, and the limit of open files"}
	case "memcached": // memcached(1)
		return Bounds{Serves: "-c, the number of connections"}
	}
	return Bounds{}
}
