package shop.gateway;

import java.io.IOException;
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericObjectPool;
import shop.Load;

/**
 * Sixteen threads lease their connection to a slow backend, at 127.0.0.1:9000, from a pool of two. Cured: the pool has sixteen.
 */
public final class Pool {
    private final GenericObjectPool<Backend> connections = new GenericObjectPool<>(new BasePooledObjectFactory<Backend>() {
        @Override
        public Backend create() throws IOException {
            return new Backend("127.0.0.1", 9000);
        }

        @Override
        public PooledObject<Backend> wrap(Backend backend) {
            return new DefaultPooledObject<>(backend);
        }
    });

    public static void main(String[] args) {
        Pool shop = new Pool();
        int size = Load.sick(args) ? 2 : 16;
        shop.connections.setMaxTotal(size);
        shop.connections.setMaxIdle(size);
        Load.run("http-worker", 16, n -> Load.sink += Load.price(n, 1000) + shop.stock());
    }

    private long stock() throws Exception {
        Backend backend = connections.borrowObject();
        try {
            return backend.ask();
        } finally {
            connections.returnObject(backend);
        }
    }
}
